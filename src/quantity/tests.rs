use super::Quantity;

fn of(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn equal_amounts_are_equal_however_they_are_written() {
    for (one, other) in [
        ("1Gi", "1024Mi"),
        ("1k", "1000"),
        ("1.5Gi", "1536Mi"),
        ("500m", "0.5"),
        ("1e3", "1000"),
        ("1E3", "1k"),
        ("12e-1", "1.2"),
        ("+1", "1"),
        (".5", "500m"),
        ("5.", "5"),
        ("-1Ki", "-1024"),
        ("1E", "1000P"),
    ] {
        assert_eq!(of(one), of(other), "{one} {other}");
    }
    assert!(of("40Gi") > of("40G"));
    assert!(of("-1") < of("0"));
}

#[test]
fn what_is_too_fine_is_rounded_up_and_what_is_too_large_is_cut() {
    assert_eq!(of("0.0000000001"), of("1n"));
    assert_eq!(of("1e-30"), of("1n"));
    let most = of("9223372036854775807");
    for text in ["9223372036854775808", "16Ei", "1e38", "999999999999999999999999999999999999999"] {
        assert_eq!(of(text), most, "{text}");
    }
    assert_eq!(most.plus(most), most);
    assert_eq!(of("-16Ei").minus(most), of("-16Ei"));
}

#[test]
fn what_is_no_quantity_is_refused() {
    for text in [
        "", "-", ".", "1.2.3", "Gi", "1gi", "1 Gi", "1Gi ", "0x1", "1e", "1e+", "1ee3", "١", "1KI",
        "--1",
    ] {
        assert!(text.parse::<Quantity>().is_err(), "{text:?}");
    }
    assert!("1".repeat(65).parse::<Quantity>().is_err());
    assert!("1e9999999999".parse::<Quantity>().is_err());
}

#[test]
fn it_is_written_with_the_largest_suffix_that_keeps_it_whole() {
    for (text, canonical) in [
        ("1024Mi", "1Gi"),
        ("81559Mi", "81559Mi"),
        ("1536Mi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("0.5", "500m"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-2048Ki", "-2Mi"),
        ("3n", "3n"),
    ] {
        assert_eq!(of(text).to_string(), canonical, "{text}");
        assert_eq!(of(&of(text).to_string()), of(text));
    }
}

#[test]
fn a_grid_is_stepped_up_to_what_is_needed() {
    let up = |min: &str, step: &str, least: &str| of(min).step_up(of(step), of(least)).to_string();
    assert_eq!(up("1Gi", "1Gi", "0"), "1Gi");
    assert_eq!(up("1Gi", "1Gi", "1Gi"), "1Gi");
    assert_eq!(up("1Gi", "2Gi", "2Gi"), "3Gi");
    assert_eq!(up("1Gi", "0", "2Gi"), "2Gi");
}

#[test]
fn whole_numbers_and_signs() {
    assert_eq!(of("1k").integer(), Some(1000));
    assert_eq!(of("500m").integer(), None);
    assert_eq!((of("-1").sign(), of("0").sign(), of("1m").sign()), (-1, 0, 1));
    assert!((of("1.5").approximate() - 1.5).abs() < 1e-12);
}
