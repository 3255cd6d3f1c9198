// Numbers that codes name, those of models/quant.

constexpr int8_t IQ4_VALUES[16] = {SMELT_IQ4_VALUES};
constexpr int8_t E2M1_VALUES[16] = {SMELT_E2M1_VALUES}; // doubled, so that they are whole
