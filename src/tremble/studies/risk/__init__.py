"""CVaR by acting, by the bootstrap and over the whole return."""
