//! A check is what Kubernetes' compiler refuses before any device is looked at: names that nothing
//! has, and comparisons that never hold. It knows fewer types than that compiler, and lets pass what
//! it does not know.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::{text, value::FIELDS};

/// How deep an expression may be, operators that follow each other among it: the interpreter's
/// stack is ours.
const MAX_DEPTH: usize = 250;

const GLOBAL: [&str; 13] = [
    "size",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "type",
    "dyn",
    "quantity",
    "isQuantity",
    "semver",
    "isSemver",
];

const MEMBER: [&str; 30] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "charAt",
    "lowerAscii",
    "upperAscii",
    "trim",
    "substring",
    "reverse",
    "hasValue",
    "value",
    "or",
    "orValue",
    "includes",
    "sign",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "major",
    "minor",
    "patch",
    "matches",
    "find",
    "findAll",
];

const NAMESPACED: [&str; 7] = [
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "strings.quote",
];

const TYPES: [&str; 11] = [
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional_type",
];

/// A type that is known without evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Quantity,
    Semver,
}

/// What is wrong, and the node at which it is.
type Wrong = (u64, String);

/// Refuses what Kubernetes refuses. First of all, what is too deep.
pub(super) fn check(expr: &IdedExpr) -> Result<(), Wrong> {
    depth(expr)?;
    walk(expr, &mut Vec::new())?;
    match type_of(expr) {
        None | Some(Type::Bool) => Ok(()),
        Some(other) => Err((expr.id, format!("must evaluate to bool, and is {}", other.name()))),
    }
}

/// Without recursion: what is too deep must not be recursed into.
fn depth(expr: &IdedExpr) -> Result<(), Wrong> {
    let mut left = vec![(expr, 1)];
    while let Some((expr, depth)) = left.pop() {
        if depth > MAX_DEPTH {
            let message = format!("nests deeper than {MAX_DEPTH}, chains of operators included");
            return Err((expr.id, message));
        }
        left.extend(children(expr).into_iter().map(|child| (child, depth + 1)));
    }
    Ok(())
}

fn children(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.iter().map(AsRef::as_ref).chain(&call.args).collect(),
        Expr::Comprehension(loops) => vec![
            &loops.iter_range,
            &loops.accu_init,
            &loops.loop_cond,
            &loops.loop_step,
            &loops.result,
        ],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| inside(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Struct(value) => value.entries.iter().flat_map(|entry| inside(&entry.expr)).collect(),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn inside(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(pair) => vec![&pair.key, &pair.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

/// Checks the names; `variables` are those of the loops around.
fn walk<'a>(expr: &'a IdedExpr, variables: &mut Vec<&'a str>) -> Result<(), Wrong> {
    match &expr.expr {
        Expr::Ident(name) => {
            let known = name == "device"
                || variables.contains(&name.as_str())
                || TYPES.contains(&name.as_str());
            return match known {
                true => Ok(()),
                false => Err((expr.id, format!("undeclared reference to '{name}'"))),
            };
        }
        Expr::Select(select) if is_device(&select.operand) => {
            field(expr.id, &select.field)?;
        }
        Expr::Call(call) => {
            if namespaced(call).is_some() {
                return call.args.iter().try_for_each(|arg| walk(arg, variables));
            }
            function(expr.id, call)?;
            comparison(expr.id, call)?;
        }
        Expr::Comprehension(loops) => {
            walk(&loops.iter_range, variables)?;
            walk(&loops.accu_init, variables)?;
            let outer = variables.len();
            variables.push(&loops.accu_var);
            walk(&loops.result, variables)?;
            variables.push(&loops.iter_var);
            variables.extend(loops.iter_var2.as_deref());
            walk(&loops.loop_cond, variables)?;
            walk(&loops.loop_step, variables)?;
            variables.truncate(outer);
            return Ok(());
        }
        Expr::Struct(value) => {
            let message = format!("objects cannot be made here: {:?}", value.type_name);
            return Err((expr.id, message));
        }
        Expr::Unspecified => return Err((expr.id, "is no expression".to_owned())),
        Expr::Select(_) | Expr::List(_) | Expr::Map(_) | Expr::Literal(_) => {}
    }
    children(expr).into_iter().try_for_each(|child| walk(child, variables))
}

fn is_device(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name == "device")
}

fn field(id: u64, name: &str) -> Result<(), Wrong> {
    match FIELDS.contains(&name) {
        true => Ok(()),
        false => {
            let known = FIELDS.join(", ");
            Err((id, format!("undefined field '{name}': a device has {known}")))
        }
    }
}

fn namespaced(call: &CallExpr) -> Option<&'static str> {
    let Expr::Ident(space) = &call.target.as_ref()?.expr else { return None };
    NAMESPACED.into_iter().find(|name| {
        name.split_once('.')
            .is_some_and(|(known, function)| known == space && function == call.func_name)
    })
}

fn function(id: u64, call: &CallExpr) -> Result<(), Wrong> {
    let name = call.func_name.as_str();
    let known = match &call.target {
        Some(_) => MEMBER.contains(&name) || text::NAMES.contains(&name),
        None => GLOBAL.contains(&name) || !name.starts_with(|c: char| c.is_ascii_alphabetic()),
    };
    // A device is no map.
    if matches!(name, operators::INDEX | operators::OPT_INDEX)
        && call.args.first().is_some_and(is_device)
    {
        return Err((id, "a device has fields, and is no map: write device.NAME".to_owned()));
    }
    match known {
        true => Ok(()),
        false => Err((id, format!("undeclared reference to '{name}': no such function here"))),
    }
}

/// A comparison of two types that are never equal, and so is a mistake.
fn comparison(id: u64, call: &CallExpr) -> Result<(), Wrong> {
    const COMPARISONS: [&str; 6] = [
        operators::EQUALS,
        operators::NOT_EQUALS,
        operators::LESS,
        operators::LESS_EQUALS,
        operators::GREATER,
        operators::GREATER_EQUALS,
    ];
    let name = call.func_name.as_str();
    let [one, other] = call.args.as_slice() else { return Ok(()) };
    let (Some(one), Some(other)) = (type_of(one), type_of(other)) else { return Ok(()) };
    let ordered = name != operators::EQUALS && name != operators::NOT_EQUALS;
    let unordered = ordered && matches!(one, Type::Quantity | Type::Semver);
    let fits = (one == other && !unordered) || (one.is_number() && other.is_number());
    if !COMPARISONS.contains(&name) || fits {
        return Ok(());
    }
    let meant = match (one, other) {
        _ if one == other => ": write one.compareTo(other), or isGreaterThan, isLessThan",
        (Type::Quantity, _) | (_, Type::Quantity) => ": did you mean quantity(\"…\")?",
        (Type::Semver, _) | (_, Type::Semver) => ": did you mean semver(\"…\")?",
        _ => "",
    };
    let (one, other) = (one.name(), other.name());
    Err((
        id,
        format!("found no matching overload for '{name}' applied to '({one}, {other})'{meant}"),
    ))
}

fn type_of(expr: &IdedExpr) -> Option<Type> {
    match &expr.expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => Some(Type::Bool),
            LiteralValue::Int(_) => Some(Type::Int),
            LiteralValue::UInt(_) => Some(Type::Uint),
            LiteralValue::Double(_) => Some(Type::Double),
            LiteralValue::String(_) => Some(Type::String),
            LiteralValue::Bytes(_) | LiteralValue::Null => None,
        },
        Expr::Select(select) if select.test => Some(Type::Bool),
        Expr::Select(select) if is_device(&select.operand) => match select.field.as_str() {
            "driver" => Some(Type::String),
            "allowMultipleAllocations" => Some(Type::Bool),
            _ => None,
        },
        // device.capacity["domain"].name
        Expr::Select(select) => match &select.operand.expr {
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let [Some(Expr::Select(map)), Some(_)] =
                    [0, 1].map(|at| call.args.get(at).map(|a| &a.expr))
                else {
                    return None;
                };
                (is_device(&map.operand) && map.field == "capacity").then_some(Type::Quantity)
            }
            _ => None,
        },
        Expr::Call(call) if call.target.is_none() => match call.func_name.as_str() {
            "quantity" => Some(Type::Quantity),
            "semver" => Some(Type::Semver),
            "string" => Some(Type::String),
            "int" | "size" => Some(Type::Int),
            "double" => Some(Type::Double),
            "uint" => Some(Type::Uint),
            _ => None,
        },
        _ => None,
    }
}

// === impl Type ===

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Quantity => "kubernetes.Quantity",
            Self::Semver => "kubernetes.Semver",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }
}
