package chat

// Marks returns the marks of a format that can be control tokens.
func Marks(format string) []string {
	for _, f := range formats {
		if f.name == format {
			return f.controls
		}
	}
	return nil
}

// Mark returns a string that identifies a format in a template.
func Mark(format string) string {
	for _, f := range formats {
		if f.name == format {
			return f.in[0]
		}
	}
	return ""
}
