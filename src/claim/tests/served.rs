//! Forms that Kubernetes served before v1, and asks beyond class and count.

use super::{claim, parse, refused};
use crate::{
    claim::{Count, Rule, Wants},
    publish::Effect,
};

fn old(version: &str, requests: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/{version}\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec:\n  \
         devices:\n    requests:\n{requests}"
    )
}

#[test]
fn flat_requests_of_the_versions_before_v1beta2_are_read() {
    let flat = "    - {name: a, deviceClassName: x, count: 2, selectors: [{cel: {expression: 'true'}}]}\n    \
                - {name: b, firstAvailable: [{name: s, deviceClassName: y}]}\n";
    let nested = "    - {name: a, exactly: {deviceClassName: x, count: 2, selectors: [{cel: \
                  {expression: 'true'}}]}}\n    - {name: b, firstAvailable: [{name: s, \
                  deviceClassName: y}]}\n";
    let v1 = claim(&old("v1", nested));
    for (version, text) in
        [("v1beta2", nested), ("v1beta1", flat), ("v1alpha3", flat), ("v1beta1", nested)]
    {
        let read = claim(&old(version, text));
        assert_eq!(read.digest(&[]), v1.digest(&[]), "{version}");
        let Wants::Exactly(ask) = &read.requests[0].wants else { panic!() };
        assert_eq!(ask.count, Count::Exact(2));
    }
}

#[test]
fn a_mistake_in_an_old_form_stands_where_it_was_written() {
    let flat = "    - name: a\n      deviceClasName: x\n";
    let (error, _) = refused(&old("v1beta1", flat));
    assert!(error.starts_with("c.yaml:8:7: "), "{error}");
    assert!(error.contains("unknown field; did you mean deviceClassName?"), "{error}");
    // v1 and v1beta2 have no flat form.
    for version in ["v1", "v1beta2"] {
        assert!(
            parse(&old(version, "    - {name: a, deviceClassName: x}\n")).is_err(),
            "{version}"
        );
    }
}

#[test]
fn tolerations_capacities_and_constraints_are_read() {
    let more = |exactly: &str, constraints: &str| {
        let request = format!("    - {{name: a, exactly: {{deviceClassName: x, {exactly}}}}}\n");
        old("v1", &request) + &format!("    constraints: [{constraints}]\n")
    };
    let read = claim(&more(
        "adminAccess: true, capacity: {requests: {memory: 10Gi, a.b/c: 3}}, tolerations: [{key: k, \
         operator: Exists, effect: NoSchedule}, {key: l, value: v}]",
        "{matchAttribute: a.b/c, requests: [a]}, {distinctAttribute: a.b/d}",
    ));
    let Wants::Exactly(ask) = &read.requests[0].wants else { panic!() };
    assert!(ask.admin);
    assert_eq!(ask.capacity["memory"].to_string(), "10Gi");
    assert_eq!(ask.capacity["a.b/c"].to_string(), "3");
    assert_eq!((&*ask.tolerations[0].key, &ask.tolerations[0].value), ("k", &None));
    assert_eq!(ask.tolerations[0].effect, Some(Effect::NoSchedule));
    assert_eq!(ask.tolerations[1].value.as_deref(), Some("v"));
    assert_eq!((read.constraints[0].rule, read.constraints[1].rule), (Rule::Match, Rule::Distinct));
    for (exactly, constraints, says) in [
        ("capacity: {requests: {memory: lots}}", "", "\"lots\" is no quantity"),
        ("capacity: {requests: {memory: -1}}", "", "-1 is below nothing"),
        ("capacity: {requests: {a b: 1}}", "", "C identifier"),
        ("capacity: {memory: 1}", "", "capacity.memory: unknown field"),
        ("tolerations: [{operator: Equal}]", "", "operator must be Exists"),
        ("tolerations: [{key: a, operator: Is}]", "", "known are Equal, Exists"),
        ("tolerations: [{key: a, value: b, operator: Exists}]", "", "value cannot be set"),
        ("tolerations: [{key: a, effect: Never}]", "", "known are None, NoSchedule, NoExecute"),
        ("count: 1", "{}", "exactly one of matchAttribute, distinctAttribute"),
        ("count: 1", "{matchAttribute: c}", "must be DOMAIN/NAME"),
        ("count: 1", "{matchAttribute: a.b/c, requests: [x]}", "no request \"x\""),
    ] {
        let (error, _) = refused(&more(exactly, constraints));
        assert!(error.contains(says), "{error} does not say {says:?}");
    }
}
