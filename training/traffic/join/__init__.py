"""The join of served lists and events into judged rows."""
