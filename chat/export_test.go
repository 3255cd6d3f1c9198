package chat

// Marks are those of a format that may be control tokens.
func Marks(format string) []string {
	for _, f := range formats {
		if f.name == format {
			return f.controls
		}
	}
	return nil
}
