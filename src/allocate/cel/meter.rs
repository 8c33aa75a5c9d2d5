//! A meter counts what an evaluation costs and ends it at a limit: CEL has no endless loop, but
//! loops in loops, and texts that double. The interpreter has no such limit, so each operand of an
//! expression is passed through a function that counts it by its size, and the functions whose
//! cost is more than the size of their operands are our own, and counted.
//!
//! Kubernetes counts differently in detail, from the same limit.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use cel::{
    Context, DeclarationError, ExecutionError, FunctionContext,
    common::{
        ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, operators},
        types::{CelBytes, CelList, CelMap, CelOptional, CelString},
        value::{CowVal, Val},
    },
};

use super::text;

/// What one evaluation may cost, as in Kubernetes.
pub(super) const LIMIT: u64 = 1_000_000;

/// What is left of the limit.
#[derive(Debug, Clone)]
pub(super) struct Meter(Arc<AtomicU64>);

/// The counting function. No expression can name it.
const COST: &str = "@cost";

/// A function as the interpreter takes one with a state.
pub(super) type Counted = Box<
    dyn for<'c, 'v> Fn(&mut FunctionContext<'c, 'v>) -> Result<CowVal<'c, 'v>, ExecutionError>
        + Send
        + Sync,
>;

// === impl Meter ===

impl Meter {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(LIMIT)))
    }

    /// Begins anew.
    pub(super) fn reset(&self) {
        self.0.store(LIMIT, Ordering::Relaxed);
    }

    /// True once the limit was passed, whatever came of the evaluation after that.
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// What was spent since it began anew.
    pub(super) fn spent(&self) -> u64 {
        LIMIT - self.0.load(Ordering::Relaxed)
    }

    /// Counts, and fails at the limit. One thread evaluates at a time.
    pub(super) fn spend(&self, cost: u64) -> Result<(), ExecutionError> {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(cost);
        self.0.store(left, Ordering::Relaxed);
        match left {
            0 => Err(ExecutionError::function_error("cost", "the limit is passed")),
            _ => Ok(()),
        }
    }

    /// Adds the functions that count.
    pub(super) fn install(&self, context: &mut Context<'_, '_>) -> Result<(), DeclarationError> {
        let meter = self.clone();
        let cost: Counted = Box::new(move |call| {
            let value = call.args.pop().ok_or(ExecutionError::MissingArgumentOrTarget)?;
            meter.weigh(value.as_ref())?;
            Ok(value)
        });
        context.add_function(COST, cost)?;
        for (name, function) in text::functions(self) {
            context.add_function(&format!("@{name}"), function)?;
        }
        Ok(())
    }

    /// Counts a value with all that is in it, as copying or comparing it may take that long.
    fn weigh(&self, value: &(dyn Val + '_)) -> Result<(), ExecutionError> {
        if let Some(text) = value.downcast_ref::<CelString<'_>>() {
            return self.spend(1 + size(text.inner().len()) / 10);
        }
        if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
            return self.spend(1 + size(bytes.inner().len()) / 10);
        }
        self.spend(1)?;
        if let Some(list) = value.downcast_ref::<CelList<'_>>() {
            return list.inner().iter().try_for_each(|item| self.weigh(item.as_ref()));
        }
        if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
            // In whatever order: it is a sum.
            let mut entries = map.inner().iter();
            return entries.try_for_each(|(key, value)| {
                self.weigh(key.inner())?;
                self.weigh(value.as_ref())
            });
        }
        match value.downcast_ref::<CelOptional<'_>>().and_then(CelOptional::option) {
            Some(inner) => self.weigh(inner),
            None => Ok(()),
        }
    }
}

pub(super) fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The expression with every operand counted.
pub(super) fn counted(expr: IdedExpr) -> IdedExpr {
    let IdedExpr { id, expr } = expr;
    let expr = match expr {
        Expr::Call(call) => Expr::Call(call_counted(call)),
        Expr::Select(mut select) => {
            *select.operand = counted(std::mem::take(&mut *select.operand));
            Expr::Select(select)
        }
        Expr::List(mut list) => {
            list.elements = list.elements.into_iter().map(operand).collect();
            Expr::List(list)
        }
        Expr::Map(mut map) => {
            map.entries = map.entries.into_iter().map(entry).collect();
            Expr::Map(map)
        }
        Expr::Comprehension(comprehension) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } =
                *comprehension;
            let (iter_var, iter_var2) = (comprehension.iter_var, comprehension.iter_var2);
            Expr::Comprehension(Box::new(ComprehensionExpr {
                iter_range: operand(iter_range),
                iter_var,
                iter_var2,
                accu_var: comprehension.accu_var,
                accu_init: counted(accu_init),
                loop_cond: counted(loop_cond),
                loop_step: counted(loop_step),
                result: counted(result),
            }))
        }
        other => other,
    };
    IdedExpr { id, expr }
}

fn call_counted(call: CallExpr) -> CallExpr {
    let CallExpr { func_name, target, args } = call;
    // The interpreter knows `map` and `filter` by the shape of their branches.
    let branches = func_name == operators::CONDITIONAL;
    let args = args.into_iter().enumerate();
    let args = args.map(|(at, arg)| if branches && at > 0 { counted(arg) } else { operand(arg) });
    let own = target.is_some() && text::NAMES.contains(&func_name.as_str());
    let target = target.map(|target| match &target.expr {
        // It may be a namespace, and is no more than a look-up if it is a variable.
        Expr::Ident(_) => target,
        _ => Box::new(operand(*target)),
    });
    let func_name = if own { format!("@{func_name}") } else { func_name };
    CallExpr { args: args.collect(), target, func_name }
}

fn operand(expr: IdedExpr) -> IdedExpr {
    let expr = counted(expr);
    match &expr.expr {
        // What a loop gathers is counted as it is gathered, and so are a list's items.
        Expr::Ident(name) if name.starts_with('@') => expr,
        Expr::List(_) => expr,
        _ => {
            let id = expr.id;
            let call = CallExpr { func_name: COST.to_owned(), target: None, args: vec![expr] };
            IdedExpr { id, expr: Expr::Call(call) }
        }
    }
}

fn entry(entry: IdedEntryExpr) -> IdedEntryExpr {
    let expr = match entry.expr {
        EntryExpr::MapEntry(mut pair) => {
            pair.key = operand(pair.key);
            pair.value = operand(pair.value);
            EntryExpr::MapEntry(pair)
        }
        other => other,
    };
    IdedEntryExpr { id: entry.id, expr }
}
