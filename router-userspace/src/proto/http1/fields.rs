//! Header fields as ranges of the head's own bytes.

use std::ops::Range;

use bytes::Bytes;

/// Where one field's name and value lie in the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub(super) name: Range<u32>,
    pub(super) value: Range<u32>,
}

/// The fields of a head, in the order received.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    pub(super) bytes: Bytes,
    pub(super) fields: Vec<Field>,
}

impl Fields {
    /// Name and value of each field; the value has no blanks around it.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields
            .iter()
            .map(|field| (self.slice(&field.name), self.slice(&field.value)))
    }

    /// The values of the fields with this name, whatever its case.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The first value of the fields with this name.
    #[must_use]
    pub fn first<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// The comma-separated members of all fields with this name, blanks trimmed, empty ones left out.
    pub fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.values(name)
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|member| !member.is_empty())
    }

    /// Whether a list field with this name has this member, whatever its case.
    #[must_use]
    pub fn has_member(&self, name: &str, member: &str) -> bool {
        self.members(name)
            .any(|found| found.eq_ignore_ascii_case(member.as_bytes()))
    }

    fn slice(&self, range: &Range<u32>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }
}
