//! Compares two versions of an encoded list by name.
//!
//! Functions return `None` if the encoding is unexpected, or if the names are out of order.

use std::cmp::Ordering;

use crate::wire::{contents, first};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences<'e> {
    pub(super) gone: Vec<&'e [u8]>,
    pub(super) come: Vec<&'e [u8]>,
    /// New versions of messages that are in both lists.
    pub(super) replaced: Vec<&'e [u8]>,
}

pub(super) fn differences<'e>(
    before: &'e [u8],
    now: &'e [u8],
    place: (u32, u32),
) -> Option<Differences<'e>> {
    let mut differences = Differences::default();
    let (before, now) = (by_name(before, place)?, by_name(now, place)?);
    let in_order = |list: &[NamedMessage<'_>]| list.is_sorted_by(|(one, _), (next, _)| one < next);
    if !in_order(&before) || !in_order(&now) {
        return None;
    }
    let (mut before, mut now) = (before.into_iter().peekable(), now.into_iter().peekable());
    loop {
        let order = match (before.peek(), now.peek()) {
            (None, None) => return Some(differences),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((now, _))) => old.cmp(now),
        };
        let old = before.next_if(|_| order.is_le());
        let now = now.next_if(|_| order.is_ge());
        match (old, now) {
            (Some((_, old)), Some((_, now))) if old == now => {}
            (Some(_), Some((_, now))) => differences.replaced.push(now),
            (Some((_, gone)), None) => differences.gone.push(gone),
            (None, Some((_, come))) => differences.come.push(come),
            (None, None) => return None,
        }
    }
}

pub(super) type NamedMessage<'e> = (&'e [u8], &'e [u8]);

pub(super) fn by_name(
    list: &[u8],
    (field, name_field): (u32, u32),
) -> Option<Vec<NamedMessage<'_>>> {
    let messages = contents(list, field)?.into_iter();
    let named = messages.map(|message| {
        let (number, name, _) = first(message)?;
        (number == name_field).then_some((name, message))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::encoded::parts::encoded;
    use crate::schema::Backend;
    use crate::wire::numbers::{backend, snapshot};

    const PLACE: (u32, u32) = (snapshot::BACKENDS, backend::NAME);

    fn list(backends: &[(&str, &str)]) -> Vec<Backend> {
        let backend = |(name, endpoints): &(&str, &str)| Backend {
            name: (*name).to_owned(),
            endpoints: (*endpoints).to_owned(),
            ..Backend::default()
        };
        backends.iter().map(backend).collect()
    }

    #[test]
    fn differences_are_found_only_in_ordered_lists() {
        let bytes = |backends: &[(&str, &str)]| encoded(snapshot::BACKENDS, &list(backends));
        let before = bytes(&[("a", "1"), ("b", "1"), ("d", "1")]);
        let now = bytes(&[("a", "1"), ("c", "1"), ("d", "2"), ("e", "1")]);
        let found = differences(&before, &now, PLACE).expect("lists by name");
        let names = |messages: &[&[u8]]| -> Vec<String> {
            let decoded = messages.iter().map(|it| Backend::decode(*it));
            decoded.map(|it| it.expect("a backend").name).collect()
        };
        assert_eq!(names(&found.gone), ["b"]);
        assert_eq!(names(&found.come), ["c", "e"]);
        assert_eq!(names(&found.replaced), ["d"]);
        let same = differences(&before, &before, PLACE);
        assert_eq!(same, Some(Differences::default()));
        for not_by_name in [
            bytes(&[("b", "1"), ("a", "1")]),
            bytes(&[("a", "1"), ("a", "1")]),
            bytes(&[("", "1")]),
        ] {
            assert_eq!(differences(&before, &not_by_name, PLACE), None);
            assert_eq!(differences(&not_by_name, &before, PLACE), None);
        }
        assert_eq!(differences(&before, &before[1..], PLACE), None);
    }
}
