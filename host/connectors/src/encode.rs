//! Rows to bytes: the formats that sinks write.
