"""Who may do what: rights asked before a handler runs and on the active controller, and the audit log of it all."""
