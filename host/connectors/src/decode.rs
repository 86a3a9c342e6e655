//! Bytes to rows: the formats that sources read.
