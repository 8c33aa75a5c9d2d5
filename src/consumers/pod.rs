//! A pod, as far as its claims go: which of them each of its containers names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;

/// A pod of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The names of its ResourceClaims, in the order of the pod; what is not made yet is none.
    pub(super) claims: Vec<Option<String>>,
    /// Container, init containers included → what it names.
    pub(super) containers: BTreeMap<String, Vec<Use>>,
    /// It chose a RuntimeClass, whose handler may be ours and wait for a record.
    pub(super) has_handler: bool,
    /// None of its containers starts any more.
    pub(super) is_over: bool,
}

/// What a container names of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    /// The ResourceClaim.
    pub(super) claim: String,
    /// One of its requests; all of them where it is none.
    pub(super) request: Option<String>,
}

// === impl Pod ===

impl Pod {
    /// What the API server says of a pod; none of one without a UID.
    pub(super) fn of(pod: &core::Pod) -> Option<Self> {
        let (uid, name) = (pod.metadata.uid.clone()?, pod.metadata.name.clone()?);
        let namespace = pod.metadata.namespace.clone()?;
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
        let mut found = Self {
            uid,
            namespace,
            name,
            claims: Vec::new(),
            containers: BTreeMap::new(),
            has_handler: spec.runtime_class_name.is_some(),
            is_over: pod.metadata.deletion_timestamp.is_some()
                || matches!(phase(status), "Succeeded" | "Failed"),
        };
        let named = found.named(spec, status);
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        for container in containers {
            let uses = container.resources.iter().flat_map(|resources| &resources.claims).flatten();
            for of in uses {
                if let Some(Some(claim)) = named.get(of.name.as_str()) {
                    let one = Use { claim: claim.clone(), request: of.request.clone() };
                    found.containers.entry(container.name.clone()).or_default().push(one);
                }
            }
        }
        found.extended(status);
        Some(found)
    }

    /// The claims by the names that the pod has for them. One that a template makes is known by the
    /// pod's status; where that names none, none is needed.
    fn named(
        &mut self,
        spec: &core::PodSpec,
        status: Option<&core::PodStatus>,
    ) -> BTreeMap<String, Option<String>> {
        let made = status.and_then(|status| status.resource_claim_statuses.as_ref());
        let made = |name: &str| made.into_iter().flatten().find(|one| one.name == name);
        let mut named = BTreeMap::new();
        for of in spec.resource_claims.iter().flatten() {
            let claim = match &of.resource_claim_name {
                Some(name) => Some(name.clone()),
                None => match made(&of.name) {
                    Some(status) if status.resource_claim_name.is_none() => {
                        named.insert(of.name.clone(), None);
                        continue;
                    }
                    status => status.and_then(|status| status.resource_claim_name.clone()),
                },
            };
            self.claims.push(claim.clone());
            named.insert(of.name.clone(), claim);
        }
        named
    }

    /// The claim that stands for extended resources: which of its requests is whose, the scheduler
    /// says in the pod's status.
    fn extended(&mut self, status: Option<&core::PodStatus>) {
        let claim = status.and_then(|status| status.extended_resource_claim_status.as_ref());
        let Some(claim) = claim else { return };
        self.claims.push(Some(claim.resource_claim_name.clone()));
        for mapping in &claim.request_mappings {
            let (claim, request) = (&claim.resource_claim_name, &mapping.request_name);
            let one = Use { claim: claim.clone(), request: Some(request.clone()) };
            self.containers.entry(mapping.container_name.clone()).or_default().push(one);
        }
    }
}

fn phase(status: Option<&core::PodStatus>) -> &str {
    status.and_then(|status| status.phase.as_deref()).unwrap_or_default()
}
