"""Who may do what: pure rules, asked by `broker`."""
