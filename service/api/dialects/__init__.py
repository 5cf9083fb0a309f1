"""Other services' HTTP interfaces, so that the clients people already have work here."""
