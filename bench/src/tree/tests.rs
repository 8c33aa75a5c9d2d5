use super::*;

#[test]
fn writes_what_go_writes() {
    let tree = Tree::Map(vec![
        ("cdiVersion", text("0.5.0")),
        (
            "devices",
            Tree::List(vec![Tree::Map(vec![
                ("name", text("0")),
                ("containerEdits", Tree::Map(vec![("env", list(["A=1"])), ("n", Tree::Number(3))])),
            ])]),
        ),
    ]);
    assert_eq!(
        tree.to_json(),
        r#"{"cdiVersion":"0.5.0","devices":[{"name":"0","containerEdits":{"env":["A=1"],"n":3}}]}"#
    );
    assert_eq!(
        tree.to_yaml(),
        "---\ncdiVersion: 0.5.0\ndevices:\n    - name: \"0\"\n      containerEdits:\n        env:\n            - A=1\n        n: 3\n"
    );
}
