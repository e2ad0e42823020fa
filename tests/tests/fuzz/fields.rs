//! Protobuf messages as trees of fields, without a schema. Edits keep the lengths of enclosing
//! messages valid.

#[derive(Clone, Debug)]
pub(crate) struct Field {
    number: u64,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Varint(u64),
    Fixed(Vec<u8>),
    /// Bytes and messages have the same wire type.
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

#[derive(Clone, Debug)]
pub(crate) enum FieldEdit {
    Remove,
    Repeat(u8),
    Number(u64),
    Bytes(Vec<u8>),
    Nest(u8),
    Renumber(u8),
}

const DEEPEST: usize = 12;

/// Returns `None` if the bytes are not a message.
pub(crate) fn parse(bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let (number, wire) = (key >> 3, key & 7);
        if number == 0 || number > 1 << 20 {
            return None;
        }
        let value = match wire {
            0 => Value::Varint(varint(&mut rest)?),
            1 => Value::Fixed(take(&mut rest, 8)?.to_vec()),
            5 => Value::Fixed(take(&mut rest, 4)?.to_vec()),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let inside = take(&mut rest, length)?;
                match parse(inside, depth + 1) {
                    Some(fields) if depth < DEEPEST && !fields.is_empty() => Value::Message(fields),
                    _ => Value::Bytes(inside.to_vec()),
                }
            }
            _ => return None,
        };
        fields.push(Field { number, value });
    }
    Some(fields)
}

/// `place` is an index into all fields of the tree.
pub(crate) fn edit(fields: &mut Vec<Field>, place: u32, edit: &FieldEdit) {
    let count = size(fields);
    if count > 0 {
        let mut left = usize::try_from(place).unwrap_or(0) % count;
        apply(fields, &mut left, edit);
    }
}

pub(crate) fn encode(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for Field { number, value } in fields {
        let mut key = |wire: u64| put_varint(&mut out, number << 3 | wire);
        match value {
            Value::Varint(value) => {
                key(0);
                put_varint(&mut out, *value);
            }
            Value::Fixed(bytes) => {
                key(if bytes.len() == 8 { 1 } else { 5 });
                out.extend(bytes);
            }
            Value::Bytes(bytes) => {
                key(2);
                put_varint(&mut out, bytes.len() as u64);
                out.extend(bytes);
            }
            Value::Message(fields) => {
                key(2);
                let inside = encode(fields);
                put_varint(&mut out, inside.len() as u64);
                out.extend(inside);
            }
        }
    }
    out
}

fn size(fields: &[Field]) -> usize {
    let inside = |field: &Field| match &field.value {
        Value::Message(fields) => size(fields),
        _ => 0,
    };
    fields.iter().map(|field| 1 + inside(field)).sum()
}

/// Returns true if the field was edited.
fn apply(fields: &mut Vec<Field>, left: &mut usize, edit: &FieldEdit) -> bool {
    for index in 0..fields.len() {
        if *left == 0 {
            change(fields, index, edit);
            return true;
        }
        *left -= 1;
        if let Value::Message(inside) = &mut fields[index].value
            && apply(inside, left, edit)
        {
            return true;
        }
    }
    false
}

fn change(fields: &mut Vec<Field>, index: usize, edit: &FieldEdit) {
    match edit {
        FieldEdit::Remove => {
            fields.remove(index);
        }
        FieldEdit::Repeat(times) => {
            let copies = vec![fields[index].clone(); usize::from(*times)];
            fields.splice(index..index, copies);
        }
        FieldEdit::Number(number) => fields[index].value = Value::Varint(*number),
        FieldEdit::Bytes(bytes) => fields[index].value = Value::Bytes(bytes.clone()),
        FieldEdit::Nest(depth) => {
            for _ in 0..*depth {
                let field = fields[index].clone();
                fields[index].value = Value::Message(vec![field]);
            }
        }
        FieldEdit::Renumber(number) => fields[index].number = u64::from(*number).max(1),
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}
