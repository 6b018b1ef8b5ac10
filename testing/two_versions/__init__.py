"""Two releases side by side, as during a deployment: each reads what the other one stores and sends."""
