//! How much a value holds. Lists that hold the same list twice, again and again, are small and yet
//! endless to whoever goes through them, and the engine does that where its limits do not count:
//! where it compares, joins and measures them. So none of them gets into a variable.

use minijinja::value::{Rest, ValueIter, ValueKind};
use minijinja::{Error, State, Value};

use crate::template_arguments::{charge, failure};

/// Items of a value, and of its items, and so on.
const MOST_ITEMS: usize = 1_000_000;

/// Gives the first value back; refuses any that holds too much.
pub fn bind(state: &mut State, values: Rest<Value>) -> Result<Value, Error> {
    for value in values.iter() {
        check(state, value)?;
    }
    Ok(values.first().cloned().unwrap_or_default())
}

/// Refuses a value that holds too much.
pub fn check(state: &State, value: &Value) -> Result<(), Error> {
    let mut items = 0;
    let mut open: Vec<(Option<Value>, ValueIter)> = Vec::new();
    open.extend(contents(value)?);
    while let Some((mapping, iterator)) = open.last_mut() {
        let Some(next) = iterator.next() else {
            open.pop();
            continue;
        };
        items += 1;
        if items > MOST_ITEMS {
            return Err(failure(format!(
                "a value has more than {MOST_ITEMS} items, those of its items counted"
            )));
        }
        let item = match mapping {
            Some(mapping) => mapping.get_item(&next)?,
            None => next,
        };
        open.extend(contents(&item)?);
    }
    charge(state, items)
}

/// What a value holds, where it can be gone through more than once; of a mapping its keys.
fn contents(value: &Value) -> Result<Option<(Option<Value>, ValueIter)>, Error> {
    Ok(match value.kind() {
        ValueKind::Map => Some((Some(value.clone()), value.try_iter()?)),
        ValueKind::Seq => Some((None, value.try_iter()?)),
        ValueKind::Iterable if value.len().is_some() => Some((None, value.try_iter()?)),
        _ => None,
    })
}
