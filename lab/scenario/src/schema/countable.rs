// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of the C library that guests can count: those in the table of guest/linux/count.c.

const COUNT_C: &str = include_str!("../../../guest/linux/count.c");
/// The beginning of the table. It ends at the next empty line.
const TABLE: &str = "#define FUNCTIONS(X)";

/// The functions' names, in the table's order.
pub(crate) fn countable() -> impl Iterator<Item = &'static str> {
    entries().map(|(_, name)| name)
}

/// The table's entries, `X(index, name)`.
fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    let table = COUNT_C.split_once(TABLE).map_or("", |(_, rest)| rest);
    let table = table.split_once("\n\n").map_or(table, |(table, _)| table);
    table.split("X(").filter_map(|entry| entry.split_once(')')?.0.split_once(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table_is_read() {
        let indexes: Vec<usize> = entries().map(|(index, _)| index.parse().unwrap()).collect();
        assert!(indexes.len() > 100, "{}", indexes.len());
        assert_eq!(indexes, (0..indexes.len()).collect::<Vec<_>>());
        let last = COUNT_C.split_once("\n\n#define NAME(").unwrap().0.rsplit_once("X(").unwrap().1;
        let last = last.trim_end_matches(')').split_once(", ").unwrap().1;
        assert_eq!(countable().last(), Some(last));
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        assert!(countable().all(|name| !name.is_empty() && is_name(name)));
        assert!(countable().any(|name| name == "write"));
    }
}
