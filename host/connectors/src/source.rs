//! Where rows come from.
