use super::*;

fn parsed(annotations: &[(&str, &str)]) -> Result<Vec<String>, AnnotationError> {
    let names = parse(annotations.iter().copied())?;
    Ok(names.iter().map(ToString::to_string).collect())
}

#[test]
fn keys_with_the_prefix_are_read_in_order_and_once() {
    let names = parsed(&[
        ("a", "not looked at"),
        ("CDI.k8s.io/x", ","),
        ("cdi.k8s.io.foo/x", ","),
        ("cdi.k8s.io/p_1", "v.com/c=a,v.com/c=b"),
        ("cdi.k8s.io/", "v.com/c=b,v.com/c=c"),
        ("cdi.k8s.io/a/b", "v.com/c=d"),
    ]);
    assert_eq!(names.unwrap(), ["v.com/c=a", "v.com/c=b", "v.com/c=c", "v.com/c=d"]);
}

#[test]
fn nothing_is_trimmed() {
    for value in ["", "v.com/c=a,", ",v.com/c=a", "v.com/c=a, v.com/c=b", "v.com/c=a "] {
        let error = parsed(&[("cdi.k8s.io/x", value)]).unwrap_err();
        assert_eq!(error.to_string(), "annotation \"cdi.k8s.io/x\"");
    }
}

#[test]
fn keys() {
    assert_eq!(key("vendor.class", "device").unwrap(), "cdi.k8s.io/vendor.class_device");
    assert_eq!(key("v", "d/e/v").unwrap(), "cdi.k8s.io/v_d_e_v");
    assert!(key("v", &"d".repeat(61)).is_ok());
    assert!(key("v", &"d".repeat(62)).is_err());
    for (plugin, id) in [("_v", "d"), ("v", "d_"), ("v", "d+e"), ("", "d"), ("v", ""), ("é", "d")]
    {
        assert!(key(plugin, id).is_err(), "{plugin} {id}");
    }
}

#[test]
fn a_value_reads_back() {
    let names = ["v.com/c=a", "v.com/c=b"].map(|name| QualifiedName::parse(name).unwrap());
    let value = value(&names);
    assert_eq!(parse([("cdi.k8s.io/x", value.as_str())].into_iter()).unwrap(), names);
}
