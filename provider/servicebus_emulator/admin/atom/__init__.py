"""The Atom documents of the administration API: entries, feeds, and descriptions as XML."""
