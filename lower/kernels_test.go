package lower

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTypeNumbers checks that weight-type constants mean the same to kernels.
func TestTypeNumbers(t *testing.T) {
	header, err := os.ReadFile("../kernels/params.h")
	require.NoError(t, err)
	numbers := map[string]int{}
	for _, m := range regexp.MustCompile(`#define SMELT_(\w+) (\d+)`).FindAllStringSubmatch(string(header), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		numbers[strings.ToLower(m[1])] = n
	}
	for _, d := range weightTypes {
		require.Equal(t, int(d), numbers[d.String()], d)
	}
}
