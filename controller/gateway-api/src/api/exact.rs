//! Lists without room to spare. A list read element by element grows to room for four; a cluster's
//! objects are many, their lists short, and their elements large.

use serde::{Deserialize, Deserializer};

/// Reads a list and gives back what it does not need.
pub(super) fn vec<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let mut list = Vec::deserialize(deserializer)?;
    list.shrink_to_fit();
    Ok(list)
}
