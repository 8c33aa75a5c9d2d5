use super::*;

fn counts(instructions: u64, calls: u64) -> BTreeMap<String, Count> {
    BTreeMap::from([("a/1".to_owned(), Count { instructions, calls })])
}

#[test]
fn the_file_is_read_back() {
    assert_eq!(read(&write(&counts(1_234_567, 39))).unwrap(), counts(1_234_567, 39));
    assert!(read("a/1 5").is_err());
}

#[test]
fn more_than_a_tenth_is_a_fault() {
    assert!(compare(&counts(1000, 40), &counts(1100, 44)).is_empty());
    assert_eq!(compare(&counts(1000, 40), &counts(1101, 45)).len(), 2);
    assert_eq!(compare(&BTreeMap::new(), &counts(1, 1)).len(), 1);
}
