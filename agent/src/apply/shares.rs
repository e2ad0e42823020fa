//! File of the shares: beside the transactions, because Envoy refuses nothing in it and shares of another moment harm
//! nobody. It must be there before an Envoy is, and ahead of more listeners and backends.

use bytes::Bytes;

use super::request::ApplyError;
use super::transaction::Applier;
use sesame_render::Rendered;

impl Applier {
    /// Writes the shares, unless the file has them already.
    pub fn share_out(&mut self, shares: &Bytes) -> Result<(), ApplyError> {
        let written = self.files.share_out(shares);
        written.map_err(|source| self.io("writing the shares", source))
    }
}

/// Returns the part that transactions are about, as it can be read from the disk again.
pub(super) fn without(rendered: &Rendered) -> Rendered {
    Rendered {
        shares: Bytes::new(),
        ..rendered.clone()
    }
}
