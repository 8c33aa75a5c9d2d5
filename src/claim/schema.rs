//! A schema is the fields that an object of resource.k8s.io/v1 may have at one place (Kubernetes
//! 1.37), those that divvy has no use for among them. A field that is in none is a mistake: were it
//! passed over, a claim would be given what it did not ask for.

pub(super) const CLAIM: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
pub(super) const CLAIM_SPEC: &[&str] = &["devices"];
pub(super) const DEVICES: &[&str] = &["requests", "constraints", "config"];
pub(super) const REQUEST: &[&str] = &["name", "exactly", "firstAvailable"];
pub(super) const EXACTLY: &[&str] = &[
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
];
pub(super) const SUBREQUEST: &[&str] = &[
    "name",
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "tolerations",
    "capacity",
    "derivedAttributes",
];
pub(super) const SELECTOR: &[&str] = &["cel"];
pub(super) const CEL: &[&str] = &["expression"];
pub(super) const TOLERATION: &[&str] = &["key", "operator", "value", "effect", "tolerationSeconds"];
pub(super) const CAPACITY: &[&str] = &["requests"];
pub(super) const CONSTRAINT: &[&str] = &["requests", "matchAttribute", "distinctAttribute"];
pub(super) const CLAIM_CONFIG: &[&str] = &["requests", "opaque"];
pub(super) const OPAQUE: &[&str] = &["driver", "parameters"];

pub(super) const STATUS: &[&str] = &["allocation", "reservedFor", "devices"];
pub(super) const ALLOCATION: &[&str] = &["devices", "nodeSelector", "allocationTimestamp"];
pub(super) const ALLOCATED: &[&str] = &["results", "config"];
/// Binding conditions are over before a node sees the claim; a device whose node operations may be
/// skipped can be prepared all the same.
pub(super) const RESULT: &[&str] = &[
    "request",
    "driver",
    "pool",
    "device",
    "adminAccess",
    "tolerations",
    "shareID",
    "consumedCapacity",
    "bindingConditions",
    "bindingFailureConditions",
    "skipNodeOperations",
];
pub(super) const ALLOCATED_CONFIG: &[&str] = &["source", "requests", "opaque"];
pub(super) const CONSUMER: &[&str] = &["apiGroup", "resource", "name", "uid"];

pub(super) const CLASS: &[&str] = &["apiVersion", "kind", "metadata", "spec"];
pub(super) const CLASS_SPEC: &[&str] = &["selectors", "config", "extendedResourceName"];
pub(super) const CLASS_CONFIG: &[&str] = &["opaque"];
