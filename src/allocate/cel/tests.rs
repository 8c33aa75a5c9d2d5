use std::collections::BTreeMap;

use semver::Version;

use super::{Cel, CelError, with_stack};
use crate::publish::{Attribute, Capacity, Device};

mod hostile;

fn device() -> Device {
    let text = |text: &str| Attribute::String(text.to_owned());
    let attributes = [
        ("type", text("mig")),
        ("profile", text("1g.10gb")),
        ("index", Attribute::Int(3)),
        ("ecc", Attribute::Bool(true)),
        ("driverVersion", Attribute::Version(Version::new(580, 65, 6))),
        ("resource.kubernetes.io/pciBusID", text("0000:1b:00.0")),
    ];
    let capacity = Capacity { value: "40Gi".parse().unwrap(), request_policy: None };
    Device {
        name: "d".to_owned(),
        attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into(),
        capacity: BTreeMap::from([("memory".to_owned(), capacity)]),
        consumes_counters: Vec::new(),
        taints: Vec::new(),
        allow_multiple_allocations: false,
    }
}

fn evaluate(expressions: &[&str]) -> Vec<Result<bool, CelError>> {
    let evaluated = || {
        let (cel, device) = (Cel::new().unwrap(), device());
        let one = |text: &&str| {
            let program = cel.compile(text)?;
            cel.holds(&program, &device, "gpu.example.com")
        };
        Some(expressions.iter().map(one).collect())
    };
    with_stack(evaluated, || None).unwrap_or_else(|| panic!("the interpreter panicked"))
}

#[track_caller]
fn all_hold(expressions: &[&str]) {
    for (expression, answer) in expressions.iter().zip(evaluate(expressions)) {
        assert_eq!(answer, Ok(true), "{expression}");
    }
}

#[track_caller]
fn all_fail(expressions: &[(&str, &str)]) {
    let texts: Vec<&str> = expressions.iter().map(|(text, _)| *text).collect();
    for ((expression, says), answer) in expressions.iter().zip(evaluate(&texts)) {
        let error = answer.expect_err(expression).to_string();
        assert!(error.contains(says), "{expression}: {error} does not say {says:?}");
    }
}

#[test]
fn a_device_has_what_kubernetes_gives_it() {
    all_hold(&[
        "device.driver == 'gpu.example.com'",
        "device.attributes['gpu.example.com'].profile == '1g.10gb'",
        "device.attributes[\"gpu.example.com\"].index == 3",
        "device.attributes['gpu.example.com'].index > 2 && device.attributes['gpu.example.com'].index < 4.5",
        "device.attributes['gpu.example.com'].ecc",
        "device.attributes['gpu.example.com'][\"type\"] == 'mig'",
        "device.attributes['resource.kubernetes.io'].pciBusID.startsWith('0000:1b')",
        "device.capacity['gpu.example.com'].memory == quantity('40960Mi')",
        "!device.allowMultipleAllocations",
        "has(device.attributes['gpu.example.com'].profile)",
        "!has(device.attributes['gpu.example.com'].nothing)",
        "!has(device.attributes['other.example.com'].profile)",
        "device.attributes['other.example.com'].size() == 0",
        "!('other.example.com' in device.attributes)",
        "'gpu.example.com' in device.attributes && 'profile' in device.attributes['gpu.example.com']",
        "device.attributes.exists(d, d == 'resource.kubernetes.io')",
        "device.attributes['gpu.example.com'].?nothing.orValue('x') == 'x'",
        "device.attributes['gpu.example.com'].?profile.hasValue()",
        "device.attributes['gpu.example.com'][?'profile'].orValue('') == '1g.10gb'",
        "device.attributes[?'other.example.com'].?profile.orValue('n') == 'n'",
        "device.attributes['gpu.example.com'].profile != 3",
        "type(device.attributes['gpu.example.com'].index) == int",
        "['1g.10gb', '2g.20gb'].exists(p, p == device.attributes['gpu.example.com'].profile)",
        "device.attributes['gpu.example.com'].profile in ['1g.10gb']",
        "device.attributes['gpu.example.com'].nothing == 'x' || true",
    ]);
}

#[test]
fn quantities() {
    all_hold(&[
        "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('39Gi'))",
        "device.capacity['gpu.example.com'].memory.isLessThan(quantity('41Gi'))",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) == 0",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('41Gi')) == -1",
        "quantity('1Gi').add(quantity('1Gi')) == quantity('2Gi')",
        "quantity('3').sub(2) == quantity('1') && quantity('1').add(-2).sign() == -1",
        "quantity('1k').asInteger() == 1000 && quantity('1k').isInteger()",
        "quantity('500m').asApproximateFloat() == 0.5 && !quantity('500m').isInteger()",
        "isQuantity('1Gi') && !isQuantity('1gi')",
    ]);
    all_fail(&[
        ("quantity('x') == quantity('1')", "\"x\" is no quantity"),
        ("quantity('500m').asInteger() == 0", "cannot convert value to integer"),
        ("device.capacity['gpu.example.com'].memory >= '40Gi'", "did you mean quantity("),
        ("device.capacity['gpu.example.com'].memory == 40", "kubernetes.Quantity, int"),
        ("quantity('1') > quantity('0')", "write one.compareTo(other)"),
        ("device.capacity['gpu.example.com'].cores.sign() == 1", "no such key: cores"),
    ]);
}

#[test]
fn versions() {
    all_hold(&[
        "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('570.0.0'))",
        "device.attributes['gpu.example.com'].driverVersion == semver('580.65.6')",
        "device.attributes['gpu.example.com'].driverVersion.major() == 580",
        "device.attributes['gpu.example.com'].driverVersion.compareTo(semver('v581.0', true)) == -1",
        "semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
        "semver('1.0.0+a') == semver('1.0.0+b')",
        "isSemver('1.2.3') && !isSemver('1.2') && isSemver('1.2', true) && !isSemver('01.2.3')",
    ]);
    all_fail(&[
        ("semver('580.65.06').major() == 580", "semver: \"580.65.06\""),
        (
            "device.attributes['gpu.example.com'].driverVersion.isLessThan('1')",
            "no matching overload",
        ),
        ("semver('1.0.0') == '1.0.0'", "did you mean semver("),
    ]);
}

#[test]
fn texts_lists_and_bindings() {
    all_hold(&[
        "'a-b-c'.split('-') == ['a', 'b', 'c'] && 'a-b-c'.split('-', 2) == ['a', 'b-c']",
        "'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc'] && 'a'.split('', 0) == []",
        "''.split('') == [] && ''.split(',') == ['']",
        "'aXbX'.replace('X', '--') == 'a--b--' && 'aXbX'.replace('X', '', 1) == 'abX'",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join(', ') == 'a, b'",
        "'héllo'.indexOf('l') == 2 && 'héllo'.lastIndexOf('l') == 3 && 'x'.indexOf('y') == -1",
        "'abcabc'.indexOf('a', 1) == 3 && 'abcabc'.lastIndexOf('a', 2) == 0",
        "'A'.lowerAscii() == 'a' && ' x '.trim() == 'x' && 'abc'.substring(1, 2) == 'b'",
        "'1g.10gb'.matches('^[0-9]g[.]') && 'a1b22'.find('[0-9]+') == '1'",
        "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('[0-9]+', 1) == ['1']",
        "cel.bind(p, device.attributes['gpu.example.com'].profile, p == '1g.10gb' && p.endsWith('gb'))",
        "cel.bind(x, 2, cel.bind(y, x + 1, x * y == 6))",
        "'a'.includes('a') && ['a', 'b'].includes('b') && !['a'].includes(1)",
        "sets.contains([1, 2, 3], [3, 1]) && sets.equivalent([1, 2], [2, 1, 1])",
        "sets.intersects([1, 2], [2]) && !sets.intersects([1], [2])",
        "[1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2].filter(x, x > 1) == [2]",
        "[1, 2].exists_one(x, x == 1) && [1, 2].all(x, x > 0)",
        "device.driver.matches('gpu') ? true : false",
    ]);
    all_fail(&[
        ("'abc'.indexOf('a', 4) == 0", "index out of range: 4"),
        ("'a'.matches('(')", "unclosed group"),
        ("['a', 1].join() == ''", "no matching overload"),
        ("'%d'.format([1]) == '1'", "undeclared reference to 'format'"),
        ("cel.bind(1, 2, true)", "must be an identifier"),
    ]);
}

#[test]
fn what_kubernetes_refuses_is_refused_and_says_where() {
    all_fail(&[
        ("device.attributes['gpu.example.com'].nothing == 'x'", "no such key: nothing"),
        ("device.attributes['gpu.example.com'].profil == 'x'", "did you mean profile?"),
        ("device.attributes['other.example.com'].profile == 'x'", "no such key: profile"),
        ("device.attributes['gpu.example.com'].profile > 3", "no matching overload for '_>_'"),
        ("false && device.drivr == ''", "at 1:16 of the expression: undefined field 'drivr'"),
        (
            "true ||\n  devices.driver == ''",
            "at 2:3 of the expression: undeclared reference to 'devices'",
        ),
        ("device.driver == 3", "(string, int)"),
        ("device.driver", "must evaluate to bool, and is string"),
        ("device.attributes['gpu.example.com'].profile", "must evaluate to bool, and is string"),
        ("device['driver'] == ''", "write device.NAME"),
        ("device.driver == 'x", "at 1:"),
        ("", "at 1:1"),
        ("device.driver.foo() == 1", "undeclared reference to 'foo'"),
        ("foo(1)", "undeclared reference to 'foo'"),
        ("1 / 0 == 1", "zero"),
        ("9223372036854775807 + 1 == 0", "overflow"),
        ("int('x') == 1", "int: string parse error"),
        ("Foo{a: 1} == 1", "objects cannot be made here"),
    ]);
}
