//! Manifests of claims and pods, as short as YAML can be.

use std::fmt::Write;

/// Something that makes a pod's claim: `resourceClaimName: x` or `resourceClaimTemplateName: x`.
pub type Source = String;

/// A container's name, what it runs, and which of the pod's claims it uses (`gpu` or `gpu/request`).
pub type Container<'a> = (&'a str, &'a str, &'a [&'a str]);

/// A pod whose first claim is `claim0`, and so on.
#[derive(Debug)]
pub struct Pod<'a> {
    pub name: &'a str,
    pub claims: &'a [Source],
    pub init: &'a [Container<'a>],
    pub containers: &'a [Container<'a>],
    /// Further lines of its spec.
    pub more: &'a str,
}

/// One GPU, whichever.
pub const ANY: &str = "requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]";

/// What a container sees of devices, a line each: the node, and why it cannot be opened.
pub const LOOK: &str = r#"for node in /dev/nvidia[0-9]* /dev/nvidia-caps/*; do
  [ -c "$node" ] || continue
  error=$( (exec 3<>"$node") 2>&1)
  echo "$node:${error##*:}"
done
echo looked"#;

/// [`LOOK`], then stay.
pub fn look_and_stay() -> String {
    format!("{LOOK}\nexec sleep 100000")
}

pub fn claim(name: &str, devices: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\n\
         spec: {{devices: {{{devices}}}}}\n"
    )
}

pub fn template(name: &str, devices: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n\
         metadata: {{name: {name}}}\nspec: {{spec: {{devices: {{{devices}}}}}}}\n"
    )
}

pub fn by_name(claim: &str) -> Source {
    format!("resourceClaimName: {claim}")
}

pub fn by_template(template: &str) -> Source {
    format!("resourceClaimTemplateName: {template}")
}

/// The request of a device by CEL.
pub fn selecting(class: &str, expression: &str) -> String {
    let expression = quoted(expression);
    format!(
        "requests: [{{name: gpu, exactly: {{deviceClassName: {class}, \
         selectors: [{{cel: {{expression: {expression}}}}}]}}}}]"
    )
}

/// A pod with one container, `c`, that uses one claim.
pub fn pod(name: &str, source: Source, script: &str) -> String {
    let containers: &[Container<'_>] = &[("c", script, &["claim0"])];
    Pod { name, claims: &[source], init: &[], containers, more: "" }.manifest()
}

// === impl Pod ===

impl Pod<'_> {
    pub fn manifest(&self) -> String {
        let Pod { name, claims, init, containers, more } = self;
        let mut text = format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  \
             restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n"
        );
        for line in more.lines() {
            text += &format!("  {line}\n");
        }
        if !claims.is_empty() {
            text += "  resourceClaims:\n";
        }
        for (at, source) in claims.iter().enumerate() {
            text += &format!("  - {{name: claim{at}, {source}}}\n");
        }
        for (key, list) in [("initContainers", init), ("containers", containers)] {
            if !list.is_empty() {
                text += &format!("  {key}:\n");
            }
            for container in *list {
                text += &listed(container);
            }
        }
        text
    }
}

fn listed((name, script, claims): &Container<'_>) -> String {
    let mut used = String::new();
    for claim in *claims {
        let (claim, request) = claim.split_once('/').unwrap_or((claim, ""));
        let request =
            if request.is_empty() { String::new() } else { format!(", request: {request}") };
        write!(used, "{{name: {claim}{request}}},").ok();
    }
    format!(
        "  - {{name: {name}, image: localhost/busybox:1, command: [sh, -c, {}], \
         resources: {{claims: [{used}]}}}}\n",
        quoted(script)
    )
}

/// A JSON string, which is YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
