//! Values of columns for `serde`: the text that [`Value::to_text`](crate::Value::to_text) writes. So nothing is
//! rounded, and what reads a dump by the schema reads what `serde` wrote.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, Date, DateTime, Decimal, Interval, Numeric, Text, Time, Timestamp, Value};

macro_rules! as_text {
    ($([$($generics:tt)*] $type:ty, |$value:ident| $shown:expr, |$text:ident| $read:expr;)+) => {$(
        impl<$($generics)*> Serialize for $type {
            fn serialize<To: Serializer>(&self, serializer: To) -> Result<To::Ok, To::Error> {
                let $value = self;
                serializer.collect_str(&$shown)
            }
        }

        impl<'de, $($generics)*> Deserialize<'de> for $type {
            fn deserialize<From: Deserializer<'de>>(deserializer: From) -> Result<$type, From::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                let $text = &*text;
                $read.map_err(From::Error::custom)
            }
        }
    )+};
}

as_text! {
    [const S: u32] Decimal<S>, |value| value, |text| text.parse();
    [] Numeric, |value| value, |text| text.parse();
    [const N: usize] Text<N>, |value| value, |text| text.parse();
    [const N: usize] Bytes<N>, |value| Value::from(*value).to_text().unwrap_or_default(),
        |text| super::bytes::of_hexadecimal(text)
            .ok_or_else(|| "write two hexadecimal digits for each byte".to_owned())
            .and_then(|bytes| Bytes::new(&bytes).map_err(|error| error.to_string()));
    [] Date, |value| value, |text| text.parse();
    [] Time, |value| value, |text| text.parse();
    [] DateTime, |value| value, |text| text.parse();
    [] Timestamp, |value| value, |text| text.parse();
    [] Interval, |value| value, |text| text.parse();
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;

    fn returns<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, json: &str) {
        assert_eq!(serde_json::to_string(&value).expect("it has a text"), json);
        assert_eq!(serde_json::from_str::<T>(json).expect("its own text"), value);
    }

    #[test]
    fn values_of_columns_are_their_texts() {
        returns(Decimal::<2>::from_units(-1999), r#""-19.99""#);
        returns(Numeric::new(100, 2).expect("a number"), r#""1.00""#);
        returns(Text::<9>::literal("a\"b"), r#""a\"b""#);
        returns(Bytes::<3>::new(&[0, 255]).expect("two fit three"), r#""00ff""#);
        returns(Date::default(), r#""1970-01-01""#);
        returns(Time::MIDNIGHT, r#""00:00:00.000000""#);
        returns(DateTime::default(), r#""1970-01-01T00:00:00.000000""#);
        returns(Timestamp::default(), r#""1970-01-01T00:00:00.000000Z""#);
        returns(Interval { months: 1, days: -2, microseconds: 3 }, r#""P1M-2DT0.000003S""#);
        returns(crate::Uuid::nil(), r#""00000000-0000-0000-0000-000000000000""#);
        assert!(serde_json::from_str::<Bytes<1>>(r#""00ff""#).is_err());
        assert!(serde_json::from_str::<Date>("5").is_err());
    }

    #[test]
    fn a_type_of_variants_is_written_with_their_names() {
        let ty = r#"{"enum":{"variants":[[0,"New"],[5,"Sent"]]}}"#;
        let read: crate::ColumnType = serde_json::from_str(ty).expect("a type");
        assert_eq!(read.to_string(), "enum(New = 0, Sent = 5)");
        assert_eq!(serde_json::to_string(&read).expect("it is written"), ty);
        assert!(serde_json::from_str::<crate::ColumnType>(r#"{"enum":{"variants":[]}}"#).is_err());
        assert_eq!(serde_json::to_string(&crate::ColumnType::DateTime).expect("it is written"), r#""date_time""#);
    }
}
