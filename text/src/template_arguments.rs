//! Arguments of filters and methods, bound to names as Python binds them.

use minijinja::value::{from_args, Kwargs, Rest};
use minijinja::{Error, ErrorKind, State, Value};

/// The values of a call's parameters; `None` and Python's `None` both mean "not given".
pub struct Arguments(Vec<Option<Value>>);

impl Arguments {
    /// Positional values first, then named ones. Fails for a name or number of values that
    /// `names` does not have.
    pub fn bind(values: &[Value], names: &[&str]) -> Result<Self, Error> {
        let (positional, named): (Rest<Value>, Kwargs) = from_args(values)?;
        if positional.len() > names.len() {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        let mut bound: Vec<Option<Value>> = positional.0.into_iter().map(Some).collect();
        for name in &names[bound.len()..] {
            bound.push(named.get::<Option<Value>>(name)?);
        }
        named.assert_all_used()?;
        let given = bound
            .into_iter()
            .map(|value| value.filter(|value| !value.is_none() && !value.is_undefined()))
            .collect();
        Ok(Self(given))
    }

    pub fn value(&self, index: usize) -> Option<&Value> {
        self.0[index].as_ref()
    }

    pub fn required(&self, index: usize) -> Result<&Value, Error> {
        self.value(index)
            .ok_or_else(|| Error::from(ErrorKind::MissingArgument))
    }

    pub fn text(&self, index: usize) -> Result<Option<&str>, Error> {
        self.value(index).map(text_of).transpose()
    }

    pub fn required_text(&self, index: usize) -> Result<&str, Error> {
        text_of(self.required(index)?)
    }

    pub fn integer(&self, index: usize) -> Result<Option<i64>, Error> {
        self.value(index)
            .map(|value| i64::try_from(value.clone()))
            .transpose()
    }

    /// A width in characters, paid for with fuel so that it cannot be used to fill the memory.
    pub fn width(&self, index: usize, state: &State) -> Result<Option<usize>, Error> {
        let Some(width) = self.integer(index)? else {
            return Ok(None);
        };
        let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
        charge(state, width)?;
        Ok(Some(width))
    }

    pub fn flag(&self, index: usize) -> bool {
        self.value(index).is_some_and(Value::is_true)
    }
}

/// Takes the fuel for `bytes` of output, at the engine's own rate.
pub fn charge(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel((bytes / 64) as u64)
}

pub fn text_of(value: &Value) -> Result<&str, Error> {
    value
        .as_str()
        .ok_or_else(|| failure(format!("expected text, not {}", value.kind())))
}

pub fn failure(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}
