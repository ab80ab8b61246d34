//! Filters, tests and functions of transformers' template environment that minijinja lacks or does
//! differently.

use std::borrow::Cow;

use minijinja::filters;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::{filters as more_filters, globals};

use crate::error::TextError;
use crate::template_arguments::{charge, failure, Arguments};
use crate::template_clock::Moment;
use crate::template_extent;
use crate::template_format;
use crate::template_json::{dumps, JsonStyle};
use crate::template_print;
use crate::template_source::{BIND, ITERATE, PERCENT, SAFE_SUM};

/// A filter's arguments, positional and named ones.
type Values = Rest<ValueOrKwargs>;

pub fn install(environment: &mut Environment<'static>) {
    install_text_filters(environment);
    environment.add_filter("int", to_int);
    environment.add_filter("float", to_float);
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    environment.add_filter("attr", attribute);
    environment.add_filter("dictsort", |value: &Value, rest: Values| {
        let names = ["case_sensitive", "by", "reverse"];
        filters::dictsort(value, named(&rest.into_values(), &names)?)
    });
    install_generators(environment);
    environment.add_function(SAFE_SUM, safe_sum);
    environment.add_function(ITERATE, iterate);
    environment.add_function(BIND, template_extent::bind);
    environment.add_function(
        PERCENT,
        |state: &mut State, pattern: &str, operand: &Value| {
            template_format::percent(state, pattern, operand)
        },
    );
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("dict", make_dict);
    environment.add_function("cycler", |items: Rest<Value>| globals::cycler(items.0));
    environment.add_function("joiner", globals::joiner);
}

fn install_text_filters(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("indent", indent);
    for name in ["escape", "e", "forceescape"] {
        environment.add_filter(name, escape);
    }
    environment.add_filter("string", |value: &Value| match value.is_safe() {
        true => Ok(value.clone()),
        false => template_print::text(value).map(Value::from),
    });
    environment.add_filter("pprint", |value: &Value| template_print::repr(value));
    environment.add_filter("join", join);
    environment.add_filter("format", template_format::format_filter);
    environment.add_filter("filesizeformat", more_filters::filesizeformat);
    environment.add_filter("striptags", more_filters::striptags);
    environment.add_filter(
        "truncate",
        |state: &mut State, value: &Value, rest: Values| {
            let names = ["length", "killwords", "end", "leeway"];
            more_filters::truncate(state, value, named(&rest.into_values(), &names)?)
        },
    );
    environment.add_filter("wordcount", |text: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .count()
    });
    environment.add_filter(
        "center",
        |state: &mut State, value: &Value, rest: Values| {
            let width = Arguments::bind(&rest.into_values(), &["width"])?.width(0, state)?;
            let text = Value::from(template_print::text(value)?);
            text.call_method(state, "center", &[Value::from(width.unwrap_or(80))])
        },
    );
}

/// All arguments by name.
fn named(values: &[Value], names: &[&str]) -> Result<Kwargs, Error> {
    let bound = Arguments::bind(values, names)?;
    let given = names.iter().enumerate();
    Ok(given
        .filter_map(|(index, name)| Some((*name, bound.value(index)?.clone())))
        .collect())
}

/// Python's versions of these return generators: always true, used up by one loop, without a length.
fn install_generators(environment: &mut Environment<'static>) {
    type Arguments = Rest<ValueOrKwargs>;
    type Name<'a> = Cow<'a, str>;
    environment.add_filter("map", |state: &mut State, value: Value, rest: Arguments| {
        filters::map(state, value, rest).map(generator)
    });
    environment.add_filter(
        "select",
        |state: &mut State, value: Value, test: Option<Name>, rest: Arguments| {
            filters::select(state, value, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "reject",
        |state: &mut State, value: Value, test: Option<Name>, rest: Arguments| {
            filters::reject(state, value, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "selectattr",
        |state: &mut State, value: Value, key: Name, test: Option<Name>, rest: Arguments| {
            filters::selectattr(state, value, key, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "rejectattr",
        |state: &mut State, value: Value, key: Name, test: Option<Name>, rest: Arguments| {
            filters::rejectattr(state, value, key, test, rest).map(generator)
        },
    );
}

fn generator(values: Vec<Value>) -> Value {
    Value::make_one_shot_iterator(values.into_iter())
}

/// The name under which a render's moment is found.
pub const CLOCK: &str = "strftime_now";

pub fn clock_function(moment: Moment) -> Value {
    Value::from_function(move |pattern: &str| moment.format(pattern))
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let refusal = TextError::Refused(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "the template refuses").with_source(refusal))
}

/// The message of a `raise_exception` anywhere below `error`.
pub fn refusal(error: &Error) -> Option<String> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(TextError::Refused(message)) = cause.downcast_ref::<TextError>() {
            return Some(message.clone());
        }
        source = cause.source();
    }
    None
}

/// `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(state: &mut State, value: &Value, rest: Values) -> Result<Value, Error> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let options = Arguments::bind(&rest.into_values(), &names)?;
    let mut style = JsonStyle {
        ensure_ascii: options.flag(0),
        sort_keys: options.flag(3),
        ..Default::default()
    };
    if let Some(indent) = options.value(1) {
        style.indent = Some(margin(indent)?);
        style.item_separator = ",".to_owned();
    }
    if let Some(separators) = options.value(2) {
        style.item_separator = separators.get_item_by_index(0)?.to_string();
        style.key_separator = separators.get_item_by_index(1)?.to_string();
    }
    let text = dumps(value, &style)?;
    charge(state, text.len())?;
    Ok(Value::from(text))
}

/// Spaces by number, or the text itself.
fn margin(width: &Value) -> Result<String, Error> {
    const WIDEST: usize = 1024;
    let margin = match width.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(
            usize::try_from(i64::try_from(width.clone())?.max(0))
                .unwrap_or(0)
                .min(WIDEST + 1),
        ),
    };
    if margin.len() > WIDEST {
        return Err(failure("an indentation is too wide"));
    }
    Ok(margin)
}

/// Jinja's `indent`: the first line and blank ones only when asked for; a newline at the end stays.
fn indent(state: &mut State, value: &Value, rest: Values) -> Result<String, Error> {
    let options = Arguments::bind(&rest.into_values(), &["width", "first", "blank"])?;
    let text = template_print::text(value)?;
    let margin = options.value(0).map_or(Ok(" ".repeat(4)), margin)?;
    charge(state, margin.len() * (text.matches('\n').count() + 1))?;
    let mut indented = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            indented.push('\n');
        }
        let wanted = if index == 0 {
            options.flag(1)
        } else {
            options.flag(2) || !line.is_empty()
        };
        if wanted {
            indented.push_str(&margin);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Jinja's `join(d="", attribute=None)`; what it writes is paid for while it grows.
fn join(state: &mut State, value: &Value, rest: Values) -> Result<String, Error> {
    let options = Arguments::bind(&rest.into_values(), &["d", "attribute"])?;
    let separator = options
        .value(0)
        .map_or(Ok(String::new()), template_print::text)?;
    let items = match options.value(1) {
        Some(attribute) => {
            let by: Kwargs = [("attribute", attribute.clone())].into_iter().collect();
            state.apply_filter("map", &[value.clone(), Value::from(by)])?
        }
        None => value.clone(),
    };
    let mut text = String::new();
    for (index, item) in items.try_iter()?.checked().enumerate() {
        let item = template_print::text(&item?)?;
        charge(state, (item.len() + separator.len()).max(64))?;
        if index > 0 {
            text.push_str(&separator);
        }
        text.push_str(&item);
    }
    Ok(text)
}

/// Markup, escaped as Python's markupsafe does it.
fn escape(value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    let plain = template_print::text(value)?;
    let mut text = String::with_capacity(plain.len());
    for character in plain.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '\'' => text.push_str("&#39;"),
            '"' => text.push_str("&#34;"),
            other => text.push(other),
        }
    }
    Ok(Value::from_safe_string(text))
}

/// A sum of texts of which some are markup: the others are escaped.
fn safe_sum(operands: Rest<Value>) -> Result<Value, Error> {
    let mut operands = operands.iter();
    let mut sum = operands.next().cloned().unwrap_or_default();
    for operand in operands {
        let (Some(_), Some(_)) = (sum.as_str(), operand.as_str()) else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("cannot add {} and {}", sum.kind(), operand.kind()),
            ));
        };
        sum = if sum.is_safe() || operand.is_safe() {
            Value::from_safe_string(format!("{}{}", escape(&sum)?, escape(operand)?))
        } else {
            Value::from(format!("{sum}{operand}"))
        };
    }
    Ok(sum)
}

/// What a loop goes over; Python does not iterate over none.
fn iterate(state: &mut State, value: &Value) -> Result<Value, Error> {
    if value.is_none() {
        return Err(failure("'NoneType' object is not iterable"));
    }
    template_extent::check(state, value)?;
    Ok(value.clone())
}

/// `dict(pairs or mapping, **named)`.
fn make_dict(values: Values) -> Result<Value, Error> {
    let mut entries: Vec<(Value, Value)> = Vec::new();
    for source in values.into_values() {
        if source.kind() == ValueKind::Map {
            for key in source.try_iter()?.checked() {
                let key = key?;
                let value = source.get_item(&key)?;
                entries.push((key, value));
            }
            continue;
        }
        for pair in source.try_iter()?.checked() {
            let pair = pair?;
            entries.push((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?));
        }
    }
    Ok(Value::from_pairs(entries))
}

/// Jinja's `attr` looks at attributes alone, so it finds none of a mapping's entries.
fn attribute(value: &Value, name: &Value) -> Result<Value, Error> {
    let is_namespace = || {
        value
            .as_object()
            .is_some_and(|object| object.type_name().contains("Namespace"))
    };
    if value.kind() == ValueKind::Map && !is_namespace() {
        return Ok(Value::UNDEFINED);
    }
    filters::attr(value, name)
}

fn default(value: &Value, rest: Values) -> Result<Value, Error> {
    let values = rest.into_values();
    let options = Arguments::bind(&values, &["default_value", "boolean"])?;
    if !value.is_undefined() && (value.is_true() || !options.flag(1)) {
        return Ok(value.clone());
    }
    // A default of none is a value here, not an absent argument.
    let given = values.first().filter(|first| !first.is_kwargs());
    Ok(options
        .value(0)
        .or(given)
        .cloned()
        .unwrap_or_else(|| Value::from("")))
}

/// Python's `int`, with the default for what is no number.
fn to_int(value: &Value, rest: Values) -> Result<Value, Error> {
    let options = Arguments::bind(&rest.into_values(), &["default", "base"])?;
    let default = || options.value(0).cloned().unwrap_or_else(|| Value::from(0));
    let base = options.integer(1)?.unwrap_or(10);
    let Some(text) = value.as_str() else {
        return Ok(match value.kind() {
            ValueKind::Bool => Value::from(i64::from(value.is_true())),
            ValueKind::Number if value.is_integer() => value.clone(),
            _ => f64::try_from(value.clone()).map_or_else(|_| default(), |n| Value::from(n as i64)),
        });
    };
    let digits = text.trim().replace('_', "");
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        _ => "",
    };
    let lower = digits.to_lowercase();
    let bare = lower.strip_prefix(prefix).unwrap_or(&lower);
    let base = u32::try_from(base).unwrap_or(10).clamp(2, 36);
    if let Ok(number) = i128::from_str_radix(bare, base) {
        return Ok(Value::from(number));
    }
    let number = digits.parse::<f64>().ok().filter(|n| n.is_finite());
    Ok(number.map_or_else(default, |number| Value::from(number as i64)))
}

/// Python's `float`, with the default for what is no number.
fn to_float(value: &Value, rest: Values) -> Result<Value, Error> {
    let options = Arguments::bind(&rest.into_values(), &["default"])?;
    let number = match value.as_str() {
        Some(text) => text.trim().replace('_', "").parse::<f64>().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    let default = || {
        options
            .value(0)
            .cloned()
            .unwrap_or_else(|| Value::from(0.0))
    };
    Ok(number.map_or_else(default, Value::from))
}

/// Whether Python's `iter` accepts it.
fn is_iterable(value: &Value) -> bool {
    match value.kind() {
        ValueKind::None => false,
        ValueKind::Undefined => true,
        _ => value.try_iter().is_ok(),
    }
}

/// Whether it has a length and items: text and mappings too.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String
    )
}
