//! The fields of a request in JSON, without what no field can hold.
//!
//! JSON in memory takes up to a hundred times its size: a body of 32 MiB of empty objects would take 3 GB. Fields are numbers,
//! texts and short lists of numbers, so everything deeper or longer is read over and not kept. What is kept in its place is of
//! the same type, so that the error about the field says what was there.
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// More fields than there are.
pub const MAX_FIELDS: usize = 64;
/// More elements than a list of a field has.
const MAX_ELEMENTS: usize = 8;

/// An object of fields.
#[derive(Debug)]
pub struct Flat(pub Map<String, Value>);

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Flat;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Flat, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = map.next_entry::<String, Kept<true>>()? {
            fields.insert(name, value.0);
            if fields.len() > MAX_FIELDS {
                return Err(Error::custom(format!("more than {MAX_FIELDS} fields")));
            }
        }
        Ok(Flat(fields))
    }
}

/// A value; a list is kept only if `LIST`.
struct Kept<const LIST: bool>(Value);

impl<'de, const LIST: bool> Deserialize<'de> for Kept<LIST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<LIST>).map(Self)
    }
}

struct Any<const LIST: bool>;

impl<'de, const LIST: bool> Visitor<'de> for Any<LIST> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut kept = vec![];
        while LIST && kept.len() < MAX_ELEMENTS {
            let Some(element) = list.next_element::<Kept<false>>()? else { return Ok(kept.into()) };
            kept.push(element.0);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Object(Map::new()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kept_and_what_none_can_hold_is_not() {
        let flat = |text: &str| serde_json::from_str::<Flat>(text).map(|flat| Value::Object(flat.0).to_string());
        let same = r#"{"a":[0.5,1.0],"b":"t\u00ebxt","c":true,"d":18446744073709551615,"e":-3,"f":null}"#;
        assert_eq!(flat(same).unwrap(), same.replace("\\u00eb", "\u{eb}"));
        assert_eq!(flat(r#"{"a":{"b":{"c":1}},"d":[[1],{"x":2},3]}"#).unwrap(), r#"{"a":{},"d":[[],{},3]}"#);
        let long = format!("[{}]", vec!["{}"; 1000].join(","));
        assert!(flat(&format!("{{\"a\":{long}}}")).unwrap().len() < 50, "what is longer is not kept");
        let many: Vec<String> = (0..1000).map(|k| format!("\"k{k}\":1")).collect();
        assert!(flat(&format!("{{{}}}", many.join(","))).unwrap_err().to_string().contains("more than 64 fields"));
        for bad in ["[]", "3", "{\"a\":[1}", "{\"a\":1} x", "{\"a\":1e999}"] {
            assert!(flat(bad).is_err(), "{bad}");
        }
    }
}
