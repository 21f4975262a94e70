//! Full-reference metrics of image pairs: PSNR, SSIM, MS-SSIM, LPIPS.
