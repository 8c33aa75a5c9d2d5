//! No expression panics, hangs or takes the memory, whatever it is.

use super::{Cel, device, evaluate, with_stack};

#[test]
fn what_nests_deeply_is_refused_or_evaluated() {
    let nests: [(&str, &str, &str); 12] = [
        ("(", "true", ")"),
        ("[", "", "]"),
        ("{1:", "1", "}"),
        ("!", "true", ""),
        ("-", "1", ""),
        ("size(", "1", ")"),
        ("[1].all(x,", "true", ")"),
        ("cel.bind(x, 1, ", "true", ")"),
        ("true ? true : ", "true", ""),
        ("device.attributes[", "'a'", "]"),
        ("optional.of(", "1", ")"),
        ("(", "", ""),
    ];
    let chains = [".a", "[0]", "+1", "&&true", "==1", ".size()", "?a", ".?a", " in [1]", "||1>2"];
    let mut expressions = Vec::new();
    for depth in [10, 45, 51, 90, 240, 300, 1000, 5000] {
        for (before, inside, after) in nests {
            expressions.push(format!("{}{inside}{}", before.repeat(depth), after.repeat(depth)));
        }
        expressions.extend(chains.map(|link| format!("device{}", link.repeat(depth))));
        expressions.extend(chains.map(|link| format!("1{}", link.repeat(depth))));
    }
    let texts: Vec<&str> = expressions.iter().map(String::as_str).collect();
    for (text, answer) in texts.iter().zip(evaluate(&texts)) {
        if text.len() > 10 << 10 {
            assert!(answer.unwrap_err().to_string().contains("bytes long"));
        }
    }
}

#[test]
fn a_long_list_of_alternatives_is_no_deep_nesting() {
    let one = "device.attributes['gpu.example.com'].profile == 'x' || ";
    let many = format!("{}true", one.repeat(180));
    assert_eq!(evaluate(&[&many]), [Ok(true)]);
}

#[test]
fn what_is_dear_ends_at_the_limit() {
    let tens = "[0,1,2,3,4,5,6,7,8,9]";
    let loops = |depth: usize| {
        let name = |at| format!("{tens}.all(x{at}, ");
        format!("{}true{}", (0..depth).map(name).collect::<String>(), ")".repeat(depth))
    };
    let doubled = |start: &str| {
        let bind = |at: usize| format!("cel.bind(y{}, y{at} + y{at}, ", at + 1);
        let binds: String = (0..45).map(bind).collect();
        format!("cel.bind(y0, {start}, {binds}size(y45) > 0{})", ")".repeat(45))
    };
    let nested = {
        let bind = |at: usize| format!("cel.bind(y{}, [y{at}, y{at}], ", at + 1);
        let binds: String = (0..45).map(bind).collect();
        format!("cel.bind(y0, 'a', {binds}y45 == y45{})", ")".repeat(45))
    };
    let grown = |call: &str| {
        let bind =
            |at: usize| format!("cel.bind(y{}, {}, ", at + 1, call.replace('y', &format!("y{at}")));
        let binds: String = (0..12).map(bind).collect();
        format!("cel.bind(y0, 'aaaaaaaaaa', {binds}size(y12) > 0{})", ")".repeat(12))
    };
    let in_loops =
        |body: &str| format!("{tens}.all(a, {tens}.all(b, {tens}.all(c, {tens}.all(d, {body}))))");
    for (expression, ends) in [
        (loops(3), false),
        (loops(8), true),
        (doubled("'aaaaaaaaaa'"), true),
        (doubled("[1, 2]"), true),
        (nested, true),
        (grown("y.replace('a', y)"), true),
        (grown("y.split('').join(y)"), true),
        (in_loops("'aaaaaaaaaaaaaaaaaaaa'.matches('(a*)*b') || true"), true),
        (in_loops("'x'.matches('\\\\pL{200}') || true"), true),
        (format!("{} || true", loops(8)), true),
        (in_loops("[1].map(x, x + a) == [a + 1]"), false),
    ] {
        let answer = evaluate(&[&expression]).remove(0);
        match ends {
            true => {
                let error = answer.expect_err(&expression).to_string();
                assert!(error.contains("costs more than the limit"), "{error}: {expression}");
            }
            false => assert_eq!(answer, Ok(true), "{expression}"),
        }
    }
}

/// Pieces of expressions; `~` is a space.
const PIECES: &str = "device .driver .attributes .capacity ['gpu.example.com'] .profile .index .memory 'a' \"\" \
    'é' b'x' 1 -1 0u 1u 1.5 -9223372036854775808 9223372036854775807 18446744073709551615u \
    true false null ( ) [ ] { } , : + - * / % == != < >= && || ! ~in~ ? .? [? x .all(x, \
    .map(x, .exists_one(x, .filter(x, has( size( int( double( string( bytes( quantity('1') \
    semver('1.0.0') .substring( .charAt( .isLessThan( .split( .orValue( optional.of( \
    .includes( cel.bind(x,";

/// Pieces of expressions, put together at random: an answer or an error, and never a panic.
#[test]
fn random_expressions_do_not_panic() {
    let pieces: Vec<String> = PIECES.split(' ').map(|piece| piece.replace('~', " ")).collect();
    let mut random = fastrand::Rng::with_seed(11);
    let run = || {
        let (cel, device) = (Cel::new().unwrap(), device());
        let mut evaluated = 0;
        for _ in 0..6000 {
            let count = random.usize(1..14);
            let mut text: String =
                (0..count).map(|_| &*pieces[random.usize(0..pieces.len())]).collect();
            // Closed, more often than not, so that some come through the parser.
            let open = text.matches('(').count().saturating_sub(text.matches(')').count());
            text.push_str(&")".repeat(open));
            if let Ok(program) = cel.compile(&text) {
                let _any = cel.holds(&program, &device, "gpu.example.com");
                evaluated += 1;
            }
        }
        evaluated
    };
    let evaluated = with_stack(run, || 0);
    assert!(evaluated > 200, "{evaluated}");
}

/// Each evaluation may be dear; all of them together may not.
#[test]
fn what_many_devices_cost_together_has_a_limit_too() {
    let run = || {
        let (cel, device) = (Cel::new().unwrap(), device());
        let program = cel.compile("[1, 2, 3].all(x, x > 0)").unwrap();
        let once = || cel.holds(&program, &device, "gpu.example.com");
        assert_eq!(once(), Ok(true));
        let spent = cel.spent.get();
        assert!(spent > 10, "{spent}");
        cel.spent.set(super::super::ALL - spent);
        assert_eq!((once(), once()), (Ok(true), Ok(true)));
        once().unwrap_err().to_string()
    };
    let error = with_stack(run, String::new);
    assert!(error.contains("steps in all"), "{error}");
}
