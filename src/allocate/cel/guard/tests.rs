use super::check;

#[test]
fn what_stands_in_texts_and_comments_does_not_nest() {
    let many = "(".repeat(200);
    for fine in [
        format!("'{many}' == \"{many}\""),
        format!("'''{many}'{many}''' + \"\"\"{many}\"\"\""),
        format!("true // {many}\n && true"),
        format!("'\\'{many}'"),
        format!("r'\\' + '{many}'"),
        format!("bR\"\\\" + b\"{many}\""),
        "()".repeat(1000),
        format!("'{many}"),
    ] {
        assert_eq!(check(&fine), Ok(()), "{fine}");
    }
    for wrong in [
        many.clone(),
        format!("r'\\' + {many}"),
        format!("'a' + {many}"),
        format!("// x\n{many}"),
        "[{(".repeat(20),
    ] {
        assert!(check(&wrong).is_err(), "{wrong}");
    }
    assert!(check(&"a".repeat(10_241)).is_err());
    assert_eq!(check(&format!("{}{}", "(".repeat(50), ")".repeat(50))), Ok(()));
}
