"""Coverage-guided fuzzing of every decoder. `targets` says what is tried, `engine` how inputs are found, `seeds` where
they begin. `python -m tools.fuzz` runs it; `tests/fuzz` replays the corpus and tries a little more in CI."""
