//! Decode
