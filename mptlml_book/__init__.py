"""What only the book needs: studies (code and settings of one chapter each), data, and what a chapter reports."""
