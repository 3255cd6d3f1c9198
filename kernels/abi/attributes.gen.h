// Code generated from ir's activations and norms by go test ./kernels -run Types -update. DO NOT EDIT.
//
// Values of fc_activation and of linear_vec's fc_norm.
#ifndef SMELT_KERNELS_ATTRIBUTES_GEN_H
#define SMELT_KERNELS_ATTRIBUTES_GEN_H

#define SMELT_ACTIVATION_NONE 0
#define SMELT_ACTIVATION_SILU 1
#define SMELT_ACTIVATION_GELU 2
#define SMELT_ACTIVATION_GELU_TANH 3
#define SMELT_ACTIVATION_RELU2 4
#define SMELT_ACTIVATION_CLAMPED_SWIGLU 5 // a gate only
#define SMELT_ACTIVATION_SIGMOID 6
#define SMELT_ACTIVATION_SOFTPLUS 7

#define SMELT_NORM_NONE 0
#define SMELT_NORM_RMS 1
#define SMELT_NORM_LAYER 2

#endif
