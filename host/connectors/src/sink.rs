//! Where rows go.
