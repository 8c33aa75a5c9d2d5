//! A library is functions beside CEL's own: Kubernetes' quantities, versions, sets and `includes`,
//! and `cel.bind`. As read in Kubernetes' documentation of CEL and in its reference.

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::{
        ast::{ComprehensionExpr, Expr, ListExpr, LiteralValue},
        traits::Iterable,
        types::{CelBool, CelDouble, CelInt, CelString, DYN_TYPE, LIST_TYPE},
        value::{CowVal, Val},
    },
    parser::Macro,
};
use semver::Version;

use super::value::{Amount, Semver};
use crate::{publish, quantity::Quantity};

/// The longest list that `includes` looks through, as in Kubernetes.
const MAX_INCLUDES: usize = 48;

type Outcome<T> = Result<T, ExecutionError>;
type Declared = Result<(), DeclarationError>;

/// CEL's own functions, and these.
///
/// # Errors
/// When a name is taken: never.
pub(super) fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    cel::extensions::strings(&mut env)?;
    quantities(&mut env)?;
    versions(&mut env)?;
    sets(&mut env)?;
    env.add_member_overload("includes", "dyn_includes_dyn", DYN_TYPE, vec![DYN_TYPE], |args| {
        includes(&args)
    })?;
    env.add_macro(bind())?;
    Ok(env)
}

fn quantities(env: &mut Env) -> Declared {
    add_overload!(env, fn quantity: (CelString) -> Result<Amount>)?;
    add_overload!(env, fn is_quantity: (CelString) -> CelBool)?;
    add_member_overload!(env, fn sign: (Amount) -> CelInt)?;
    add_member_overload!(env, fn is_integer: (Amount) -> CelBool)?;
    add_member_overload!(env, fn as_integer: (Amount) -> Result<CelInt>)?;
    add_member_overload!(env, fn as_approximate_float: (Amount) -> CelDouble)?;
    add_member_overload!(env, fn more: (Amount, Amount) -> CelBool, name = "isGreaterThan")?;
    add_member_overload!(env, fn less: (Amount, Amount) -> CelBool, name = "isLessThan")?;
    add_member_overload!(env, fn compare: (Amount, Amount) -> CelInt, name = "compareTo")?;
    add_member_overload!(env, fn add: (Amount, Amount) -> Amount)?;
    add_member_overload!(env, fn add_int: (Amount, CelInt) -> Result<Amount>, name = "add")?;
    add_member_overload!(env, fn sub: (Amount, Amount) -> Amount)?;
    add_member_overload!(env, fn sub_int: (Amount, CelInt) -> Result<Amount>, name = "sub")
}

fn versions(env: &mut Env) -> Declared {
    add_overload!(env, fn semver: (CelString) -> Result<Semver>)?;
    add_overload!(env, fn semver_as: (CelString, CelBool) -> Result<Semver>, name = "semver")?;
    add_overload!(env, fn is_semver: (CelString) -> CelBool)?;
    add_overload!(env, fn is_semver_as: (CelString, CelBool) -> CelBool, name = "isSemver")?;
    add_member_overload!(env, fn major: (Semver) -> CelInt)?;
    add_member_overload!(env, fn minor: (Semver) -> CelInt)?;
    add_member_overload!(env, fn patch: (Semver) -> CelInt)?;
    add_member_overload!(env, fn later: (Semver, Semver) -> CelBool, name = "isGreaterThan")?;
    add_member_overload!(env, fn earlier: (Semver, Semver) -> CelBool, name = "isLessThan")?;
    add_member_overload!(env, fn order: (Semver, Semver) -> CelInt, name = "compareTo")
}

fn sets(env: &mut Env) -> Declared {
    let two = || vec![LIST_TYPE, LIST_TYPE];
    env.add_overload("sets.contains", "list_sets_contains_list", two(), |args| {
        let (one, other) = lists(&args)?;
        Ok(truth(all_in(other, one)))
    })?;
    env.add_overload("sets.equivalent", "list_sets_equivalent_list", two(), |args| {
        let (one, other) = lists(&args)?;
        Ok(truth(all_in(other, one) && all_in(one, other)))
    })?;
    env.add_overload("sets.intersects", "list_sets_intersects_list", two(), |args| {
        let (one, other) = lists(&args)?;
        let mut items = one.iter();
        while let Some(item) = items.next() {
            if holds(other, item) {
                return Ok(truth(true));
            }
        }
        Ok(truth(false))
    })
}

/// `cel.bind(x, init, expr)`: a loop over nothing, whose result is `expr` with `x` for `init`.
fn bind() -> Macro {
    Macro::receiver("bind", 3, |helper, target, args| {
        let named = |expr: &Expr| matches!(expr, Expr::Ident(name) if name == "cel");
        if !target.as_ref().is_some_and(|target| named(&target.expr)) {
            return Ok(None);
        }
        let mut args = std::mem::take(args).into_iter();
        let (Some(name), Some(accu_init), Some(result)) = (args.next(), args.next(), args.next())
        else {
            return Ok(None);
        };
        let Expr::Ident(variable) = name.expr else {
            return Err(helper.new_error(name.id, "cel.bind() variable must be an identifier"));
        };
        let loop_cond =
            helper.next_expr(Expr::Literal(LiteralValue::Boolean(CelBool::from(false))));
        let loop_step = helper.next_expr(Expr::Ident(variable.clone()));
        let iter_range = helper.next_expr(Expr::List(ListExpr::default()));
        Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range,
            iter_var: "#unused".to_owned(),
            iter_var2: None,
            accu_var: variable,
            accu_init,
            loop_cond,
            loop_step,
            result,
        })))))
    })
}

fn quantity(text: &CelString<'_>) -> Outcome<Amount> {
    let parsed = text.inner().parse::<Quantity>();
    parsed.map(Amount).map_err(|error| ExecutionError::function_error("quantity", error))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(text.inner().parse::<Quantity>().is_ok())
}

fn sign(amount: &Amount) -> CelInt {
    CelInt::from(amount.0.sign())
}

fn is_integer(amount: &Amount) -> CelBool {
    CelBool::from(amount.0.integer().is_some())
}

fn as_integer(amount: &Amount) -> Outcome<CelInt> {
    let failed = || ExecutionError::function_error("asInteger", "cannot convert value to integer");
    amount.0.integer().map(CelInt::from).ok_or_else(failed)
}

fn as_approximate_float(amount: &Amount) -> CelDouble {
    CelDouble::from(amount.0.approximate())
}

fn more(one: &Amount, other: &Amount) -> CelBool {
    CelBool::from(one.0 > other.0)
}

fn less(one: &Amount, other: &Amount) -> CelBool {
    CelBool::from(one.0 < other.0)
}

fn compare(one: &Amount, other: &Amount) -> CelInt {
    CelInt::from(one.0.cmp(&other.0) as i64)
}

fn add(one: &Amount, other: &Amount) -> Amount {
    Amount(one.0.plus(other.0))
}

fn add_int(one: &Amount, other: &CelInt) -> Outcome<Amount> {
    whole(other).map(|other| Amount(one.0.plus(other)))
}

fn sub(one: &Amount, other: &Amount) -> Amount {
    Amount(one.0.minus(other.0))
}

fn sub_int(one: &Amount, other: &CelInt) -> Outcome<Amount> {
    whole(other).map(|other| Amount(one.0.minus(other)))
}

fn whole(number: &CelInt) -> Outcome<Quantity> {
    let parsed = number.inner().to_string().parse();
    parsed.map_err(|error| ExecutionError::function_error("quantity", error))
}

fn semver(text: &CelString<'_>) -> Outcome<Semver> {
    semver_as(text, &CelBool::from(false))
}

fn semver_as(text: &CelString<'_>, normalize: &CelBool) -> Outcome<Semver> {
    let failed = || ExecutionError::function_error("semver", format!("{:?}", text.inner()));
    version(text, normalize).map(Semver).ok_or_else(failed)
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    is_semver_as(text, &CelBool::from(false))
}

fn is_semver_as(text: &CelString<'_>, normalize: &CelBool) -> CelBool {
    CelBool::from(version(text, normalize).is_some())
}

fn version(text: &CelString<'_>, normalize: &CelBool) -> Option<Version> {
    match normalize.inner() {
        true => publish::normalized(text.inner()),
        false => Version::parse(text.inner()).ok(),
    }
}

fn major(version: &Semver) -> CelInt {
    number(version.0.major)
}

fn minor(version: &Semver) -> CelInt {
    number(version.0.minor)
}

fn patch(version: &Semver) -> CelInt {
    number(version.0.patch)
}

fn number(part: u64) -> CelInt {
    CelInt::from(i64::try_from(part).unwrap_or(i64::MAX))
}

fn later(one: &Semver, other: &Semver) -> CelBool {
    CelBool::from(one.0.cmp_precedence(&other.0).is_gt())
}

fn earlier(one: &Semver, other: &Semver) -> CelBool {
    CelBool::from(one.0.cmp_precedence(&other.0).is_lt())
}

fn order(one: &Semver, other: &Semver) -> CelInt {
    CelInt::from(one.0.cmp_precedence(&other.0) as i64)
}

/// `x.includes(v)`: of a list, that `v` is in it; of anything else, that it is `v`.
fn includes<'b, 'v>(args: &[CowVal<'b, 'v>]) -> Outcome<CowVal<'b, 'v>> {
    let [value, wanted] = args else {
        return Err(ExecutionError::MissingArgumentOrTarget);
    };
    if *value.get_type() != LIST_TYPE {
        return Ok(truth(value.equals(wanted.as_ref())));
    }
    let list = iterable(value)?;
    let size = value.as_sizer().map_or(0, |sizer| *sizer.size().inner());
    if usize::try_from(size).is_ok_and(|size| size > MAX_INCLUDES) {
        let message = format!("the list has {size} items, and may have {MAX_INCLUDES}");
        return Err(ExecutionError::function_error("includes", message));
    }
    Ok(truth(holds(list, wanted.as_ref())))
}

fn lists<'a, 'v>(
    args: &'a [CowVal<'_, 'v>],
) -> Outcome<(&'a (dyn Iterable + 'v), &'a (dyn Iterable + 'v))> {
    match args {
        [one, other] => Ok((iterable(one)?, iterable(other)?)),
        _ => Err(ExecutionError::MissingArgumentOrTarget),
    }
}

fn iterable<'a, 'v>(value: &'a CowVal<'_, 'v>) -> Outcome<&'a (dyn Iterable + 'v)> {
    value.as_iterable().ok_or(ExecutionError::MissingArgumentOrTarget)
}

fn all_in(items: &dyn Iterable, list: &dyn Iterable) -> bool {
    let mut items = items.iter();
    while let Some(item) = items.next() {
        if !holds(list, item) {
            return false;
        }
    }
    true
}

fn holds(list: &dyn Iterable, wanted: &dyn Val) -> bool {
    let mut items = list.iter();
    while let Some(item) = items.next() {
        if item.equals(wanted) {
            return true;
        }
    }
    false
}

fn truth<'b, 'v>(flag: bool) -> CowVal<'b, 'v> {
    CowVal::owned(CelBool::from(flag))
}
