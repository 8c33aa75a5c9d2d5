use super::*;

fn flaw_of(text: &str) -> (Part, Flaw) {
    match QualifiedName::parse(text) {
        Err(NameError::Invalid { part, flaw, .. }) => (part, flaw),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn good_names_keep_their_parts_and_case() {
    for (text, vendor, class, device) in [
        ("vendor.com/class=dev", "vendor.com", "class", "dev"),
        ("v/c=d", "v", "c", "d"),
        ("Vendor.COM/Class=Dev", "Vendor.COM", "Class", "Dev"),
        ("vend_or.com/cl_ass=d", "vend_or.com", "cl_ass", "d"),
        ("vendor..com/c=d", "vendor..com", "c", "d"),
        ("v.com/c=0", "v.com", "c", "0"),
        ("v.com/c=0000:3b:00.0", "v.com", "c", "0000:3b:00.0"),
        ("v.com/c=all", "v.com", "c", "all"),
    ] {
        let name = QualifiedName::parse(text).unwrap();
        assert_eq!((name.vendor(), name.class(), name.device()), (vendor, class, device));
        assert_eq!(name.kind(), format!("{vendor}/{class}"));
        assert_eq!(name.to_string(), text);
    }
}

#[test]
fn a_missing_part_is_named() {
    for text in ["", "/dev/null", "class=dev", "=d", "/c=d", "x"] {
        let error = QualifiedName::parse(text).unwrap_err();
        assert!(error.to_string().contains("missing vendor"), "{error}");
    }
    for (text, part) in
        [("v/=d", Part::Class), ("v.com/c", Part::Device), ("v.com/c=", Part::Device)]
    {
        let wanted = NameError::Unqualified { text: text.to_owned(), missing: part };
        assert_eq!(QualifiedName::parse(text), Err(wanted));
    }
}

#[test]
fn a_kind_has_no_device() {
    let error = check_kind("x").unwrap_err().to_string();
    assert_eq!(error, "\"x\" is not a CDI kind: missing class, a kind is vendor/class");
}

#[test]
fn a_broken_part_is_named_with_its_flaw() {
    for (text, part, flaw) in [
        ("v.com/c=a=b", Part::Device, Flaw::Character('=')),
        ("v.com/c==d", Part::Device, Flaw::FirstNotAlphanumeric),
        ("1v.com/c=d", Part::Vendor, Flaw::FirstNotLetter),
        ("v.com/1c=d", Part::Class, Flaw::FirstNotLetter),
        ("v-/c=d", Part::Vendor, Flaw::LastNotAlphanumeric),
        ("v.com/c =d", Part::Class, Flaw::Character(' ')),
        ("v.com/c=d ", Part::Device, Flaw::Character(' ')),
        (" v.com/c=d", Part::Vendor, Flaw::FirstNotLetter),
        ("v/a/b=c", Part::Class, Flaw::Character('/')),
        ("v.com/c=a@b", Part::Device, Flaw::Character('@')),
        ("v.com/c=a/b", Part::Device, Flaw::Character('/')),
        ("v.com/c=a,b", Part::Device, Flaw::Character(',')),
        ("v.com/c=*", Part::Device, Flaw::FirstNotAlphanumeric),
        ("v.com/c=aéb", Part::Device, Flaw::Character('é')),
        ("v.com/c=é", Part::Device, Flaw::FirstNotAlphanumeric),
        ("v.cöm/c=d", Part::Vendor, Flaw::Character('ö')),
        ("v.com/c=a\nb", Part::Device, Flaw::Character('\n')),
    ] {
        assert_eq!(flaw_of(text), (part, flaw), "{text}");
    }
}

#[test]
fn an_error_is_one_line_and_short() {
    let long = format!("v.com/c=a\n{}", "x".repeat(100_000));
    let error = QualifiedName::parse(&long).unwrap_err().to_string();
    assert!(error.len() < 500 && !error.contains('\n'), "{error}");
}

#[test]
fn kinds() {
    for kind in ["vendor.com/class", "v/c", "v.com/c.d"] {
        assert_eq!(check_kind(kind), Ok(()));
    }
    for kind in ["", "v.com", "v.com/", "/c", "v/c/d", "1v/c", "v/1c", "v/c-"] {
        assert!(check_kind(kind).is_err(), "{kind}");
    }
}
