"""HTTP routes and the actions behind them."""
