"""What cleans recordings: nothing is recorded."""

from __future__ import annotations

from devtools_testutils import add_general_regex_sanitizer

__all__ = ["add_general_regex_sanitizer", "add_oauth_response_sanitizer", "add_remove_header_sanitizer"]

add_oauth_response_sanitizer = add_remove_header_sanitizer = add_general_regex_sanitizer
