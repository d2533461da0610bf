PS1='\h:\w# '
