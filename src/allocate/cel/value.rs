//! A value is what CEL sees of a device: the device itself, its domains of attributes, quantities
//! and versions. The rest are CEL's own.

use std::{any::Any, collections::BTreeMap};

use cel::{
    ExecutionError,
    common::{
        traits::{Container, Indexer, Iterable, Iterator, Sizer},
        types::{CelBool, CelInt, CelString, Kind, MAP_TYPE, Type},
        value::{CowVal, StaticVal, Val},
    },
};
use semver::Version;

use crate::{
    publish::{Attribute, Device},
    quantity::Quantity,
};

/// A quantity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount(pub(super) Quantity);

/// A semantic version.
#[derive(Debug, Clone)]
pub(super) struct Semver(pub(super) Version);

/// Names and what they stand for, by name.
#[derive(Debug, Default)]
pub(super) struct Table {
    keys: Vec<CelString<'static>>,
    values: Vec<Box<dyn Val>>,
    /// What an unknown name stands for, in a table where none is unknown.
    otherwise: Option<Box<Table>>,
}

/// `device`
#[derive(Debug)]
pub(super) struct Given {
    driver: CelString<'static>,
    attributes: Table,
    capacity: Table,
    multiple: CelBool,
}

/// The fields of `device`, as Kubernetes' type DRADevice has them.
pub(super) const FIELDS: [&str; 4] =
    ["driver", "attributes", "capacity", "allowMultipleAllocations"];

static QUANTITY: Type = Type::simple_type(Kind::Struct, "kubernetes.Quantity");
static SEMVER: Type = Type::simple_type(Kind::Struct, "kubernetes.Semver");
static DEVICE: Type = Type::simple_type(Kind::Struct, "kubernetes.DRADevice");

// === impl Given ===

impl Given {
    /// A device of this driver.
    pub(super) fn of(device: &Device, driver: &str) -> Self {
        let attributes = device.attributes.iter().map(|(name, value)| {
            let value: Box<dyn Val> = match value {
                Attribute::String(text) => Box::new(CelString::from(text.clone())),
                Attribute::Int(number) => Box::new(CelInt::from(*number)),
                Attribute::Bool(flag) => Box::new(CelBool::from(*flag)),
                Attribute::Version(version) => Box::new(Semver(version.clone())),
            };
            (name.as_str(), value)
        });
        let capacity = device.capacity.iter().map(|(name, capacity)| {
            (name.as_str(), Box::new(Amount(capacity.value)) as Box<dyn Val>)
        });
        Self {
            driver: CelString::from(driver.to_owned()),
            attributes: domains(attributes, driver),
            capacity: domains(capacity, driver),
            multiple: CelBool::from(device.allow_multiple_allocations),
        }
    }
}

/// Names by their domains; those without one are the driver's. As read: to look up an unknown
/// domain gives an empty one, and is no error, but `in` says that it is not there.
fn domains<'a>(
    named: impl std::iter::Iterator<Item = (&'a str, Box<dyn Val>)>,
    driver: &str,
) -> Table {
    let mut domains: BTreeMap<&str, Table> = BTreeMap::new();
    for (name, value) in named {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        let table = domains.entry(domain).or_default();
        table.keys.push(CelString::from(id.to_owned()));
        table.values.push(value);
    }
    let keys = domains.keys().map(|domain| CelString::from((*domain).to_owned())).collect();
    let values = domains.into_values().map(|table| Box::new(table) as Box<dyn Val>).collect();
    Table { keys, values, otherwise: Some(Box::default()) }
}

impl Val for Given {
    fn get_type(&self) -> &Type {
        &DEVICE
    }

    fn cel_type() -> &'static Type {
        &DEVICE
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(Self {
            driver: self.driver.clone(),
            attributes: self.attributes.copy(),
            capacity: self.capacity.copy(),
            multiple: CelBool::from(*self.multiple.inner()),
        })
    }
}

impl Indexer for Given {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match key.downcast_ref::<CelString<'_>>().map(CelString::inner) {
            Some("driver") => Ok(CowVal::Borrowed(&self.driver)),
            Some("attributes") => Ok(CowVal::Borrowed(&self.attributes)),
            Some("capacity") => Ok(CowVal::Borrowed(&self.capacity)),
            Some("allowMultipleAllocations") => Ok(CowVal::Borrowed(&self.multiple)),
            _ => Err(missing(key)),
        }
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

fn missing(key: &dyn Val) -> ExecutionError {
    let name = key.downcast_ref::<CelString<'_>>().map(|text| text.inner().to_owned());
    match name {
        Some(name) => ExecutionError::NoSuchKey(name.into()),
        None => ExecutionError::no_such_overload(
            "_[_]",
            vec!["map(string, dyn)".to_owned(), key.get_type().name().to_owned()],
        ),
    }
}

// === impl Table ===

impl Table {
    fn find(&self, key: &dyn Val) -> Option<&(dyn Val + 'static)> {
        let key = key.downcast_ref::<CelString<'_>>()?.inner();
        let at = self.keys.iter().position(|known| known.inner() == key)?;
        self.values.get(at).map(AsRef::as_ref)
    }

    fn copy(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            values: self.values.clone(),
            otherwise: self.otherwise.as_ref().map(|table| Box::new(table.copy())),
        }
    }
}

impl StaticVal for Table {}

impl Val for Table {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| {
            self.keys == other.keys
                && self.values.iter().zip(&other.values).all(|(one, two)| one.equals(two.as_ref()))
        })
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.copy())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Container for Table {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.find(key).is_some())
    }
}

impl Indexer for Table {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match (self.find(key), &self.otherwise) {
            (Some(value), _) => Ok(CowVal::Borrowed(value)),
            (None, Some(table)) if key.get_type().kind() == Kind::String => {
                Ok(CowVal::Borrowed(table.as_ref()))
            }
            _ => Err(missing(key)),
        }
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Sizer for Table {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.keys.len()).unwrap_or(i64::MAX))
    }
}

impl Iterable for Table {
    fn iter<'b, 'v>(&'b self) -> Box<dyn Iterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Keys(self.keys.iter()))
    }
}

/// The keys of a table.
struct Keys<'b>(std::slice::Iter<'b, CelString<'static>>);

impl<'b, 'v> Iterator<'b, 'v> for Keys<'b> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|key| key as &dyn Val)
    }
}

// === impl Amount ===

impl StaticVal for Amount {}

impl Val for Amount {
    fn get_type(&self) -> &Type {
        &QUANTITY
    }

    fn cel_type() -> &'static Type {
        &QUANTITY
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(*self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

// === impl Semver ===

impl StaticVal for Semver {}

impl Val for Semver {
    fn get_type(&self) -> &Type {
        &SEMVER
    }

    fn cel_type() -> &'static Type {
        &SEMVER
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| self.0.cmp_precedence(&other.0).is_eq())
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
