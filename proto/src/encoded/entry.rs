//! Encoded messages with a name, which versions of a snapshot share.

use bytes::Bytes;
use prost::Message;

use crate::wire::numbers::{backend, endpoint_set, virtual_host};
use crate::wire::{append_head, appended_len, first};

const NAME: u32 = backend::NAME;
const _: () = assert!(endpoint_set::NAME == NAME && virtual_host::DOMAIN == NAME);

/// An encoded message whose first field is its name. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Entry(Bytes);

impl PartialEq for Entry {
    /// Compares addresses first, because unchanged entries are shared.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.bytes(), other.bytes()) || self.0 == other.0
    }
}

impl Eq for Entry {}

impl Entry {
    pub(crate) fn new(message: &impl Message) -> Self {
        Self(message.encode_to_vec().into())
    }

    /// Returns the name, or the domain of a virtual host.
    pub fn name(&self) -> &str {
        match first(&self.0) {
            Some((NAME, name, _)) => std::str::from_utf8(name).unwrap_or_default(),
            _ => "",
        }
    }

    /// Returns the encoded message.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn decoded<M: Message + Default>(&self) -> M {
        #[expect(clippy::expect_used, reason = "proven")]
        M::decode(&*self.0).expect("an entry is an encoded message of its list")
    }

    /// Appends parts of the same message, whose own names are dropped.
    pub(super) fn continued(&self, parts: &[&Self]) -> Self {
        let rests = parts.iter().map(|part| match first(&part.0) {
            Some((NAME, _, rest)) => rest,
            _ => &part.0,
        });
        let all: Vec<&[u8]> = std::iter::once(self.bytes()).chain(rests).collect();
        Self(all.concat().into())
    }
}

/// Encodes messages into one buffer, which takes less memory than a buffer for each.
pub(super) fn entries<M: Message>(messages: &[M]) -> Vec<Entry> {
    let size = messages.iter().map(Message::encoded_len).sum();
    let mut bytes = Vec::with_capacity(size);
    let mut ends = Vec::with_capacity(messages.len());
    for message in messages {
        message.encode_raw(&mut bytes);
        ends.push(bytes.len());
    }
    let bytes = Bytes::from(bytes);
    let mut start = 0;
    ends.into_iter()
        .map(|end| Entry(bytes.slice(std::mem::replace(&mut start, end)..end)))
        .collect()
}

/// Returns the size in bytes of a list in its message.
pub(super) fn list_len<'e>(field: u32, list: impl IntoIterator<Item = &'e Entry>) -> usize {
    let lengths = list.into_iter();
    lengths.map(|it| appended_len(field, it.0.len())).sum()
}

/// Writes a list as it stands in its message.
pub(super) fn write_list<'e>(
    field: u32,
    list: impl IntoIterator<Item = &'e Entry>,
    write: &mut impl FnMut(&[u8]),
) {
    let mut head = Vec::new();
    for entry in list {
        head.clear();
        append_head(field, entry.0.len(), &mut head);
        write(&head);
        write(&entry.0);
    }
}

/// Returns the entries that are in only one list, or differ. Both lists must be sorted by name.
pub(super) fn differences<'b, 'n>(
    before: &'b [Entry],
    now: &'n [Entry],
) -> Vec<(Option<&'b Entry>, Option<&'n Entry>)> {
    let mut differences = Vec::new();
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    loop {
        let order = match (before.peek(), now.peek()) {
            (None, None) => return differences,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) if old == new => std::cmp::Ordering::Equal,
            (Some(old), Some(new)) => old.name().cmp(new.name()),
        };
        let pair = (
            before.next_if(|_| order.is_le()),
            now.next_if(|_| order.is_ge()),
        );
        if pair.0 != pair.1 {
            differences.push(pair);
        }
    }
}

/// Returns true if no name occurs twice, and all are in order.
pub(super) fn is_sorted(list: &[Entry]) -> bool {
    list.is_sorted_by(|one, next| one.name() < next.name())
}

/// Finds an entry in a list sorted by name.
pub(super) fn place(list: &[Entry], name: &str) -> Result<usize, usize> {
    list.binary_search_by(|held| held.name().cmp(name))
}
