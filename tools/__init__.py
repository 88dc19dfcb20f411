"""Tools of development; nothing here is part of the installed package."""
