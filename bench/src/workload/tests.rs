use super::*;

/// What the workloads must stay, so that figures of different days can be compared.
#[test]
fn sizes_stay() {
    let size = |name: &str| {
        let all = all();
        let workload = all.iter().find(|workload| workload.name == name).unwrap();
        let bytes: usize = workload.specs.iter().map(|(_, content)| content.len()).sum();
        (workload.specs.len(), bytes / 1000)
    };
    let sizes = ["a", "b", "bj", "c", "d", "e"].map(size);
    assert_eq!(sizes, [(1, 14), (1, 95), (1, 64), (160, 242), (1000, 1518), (160, 2256)]);
    assert_eq!(crate::config::config(&[]).len() / 1000, 26);
}
